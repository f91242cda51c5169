// linear.c: what the compiler would emit, by hand: softmax regression x[B, I] -> C with SGD and momentum, gradients
// accumulated over micro-batches in chains over the examples, a random mask on the inputs, a metric, predictions.
// program.h holds the layout and the description; run.py writes it.
#include "program.h"
#include "runtime/runtime.h"
#include <math.h>
#include <string.h>

const char cinch_meta[] = META;

#define F32(at) ((float *)(arena + (at)))
#define I32(at) ((int *)(arena + (at)))

static float expOf(float x) { // any deterministic function will do
  float y = 1.0f + x / 256.0f;
  for (int i = 0; i < 8; ++i)
    y *= y;
  return y;
}
static float logOf(float x) {
  float y = 0;
  for (int i = 0; i < 30; ++i)
    y += 2.0f * (x - expOf(y)) / (x + expOf(y));
  return y;
}

static int mask(int64_t seed, int64_t step, int64_t example, int64_t i) {
  uint64_t x = (uint64_t)seed * 0x9e3779b97f4a7c15u + (uint64_t)(step * 1000003 + example * 1009 + i);
  x ^= x >> 31;
  x *= 0xbf58476d1ce4e5b9u;
  return (x >> 33) % 10 != 0;
}

static void rows(int64_t thread, int64_t threads, int64_t n, int64_t *begin, int64_t *end) {
  *begin = n * thread / threads;
  *end = n * (thread + 1) / threads;
}

static void logits(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  int64_t begin, end;
  rows(thread, threads, o[3], &begin, &end);
  const float *w = F32(W), *b = F32(BIAS), *x = F32(o[0]);
  for (int64_t r = begin; r < end; ++r)
    for (int c = 0; c < C; ++c) {
      float sum = b[c];
      for (int i = 0; i < I; ++i) {
        float value = x[r * I + i];
        if (o[2] && !mask(context[2], context[0], context[1] + r, i))
          value = 0;
        sum += value * w[c * I + i];
      }
      F32(o[1])[r * C + c] = sum;
    }
#ifdef PLANT_STEP
  if (o[2] && context[0] == PLANT_STEP && context[1] == PLANT_EXAMPLE && thread == 0)
    F32(o[1])[3] = INFINITY;
#endif
}

static void loss(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  if (thread)
    return;
  float *z = F32(LOGITS), total = F32(LOSS)[0];
  for (int r = 0; r < MB; ++r) {
    float most = z[r * C], sum = 0;
    for (int c = 1; c < C; ++c)
      most = z[r * C + c] > most ? z[r * C + c] : most;
    for (int c = 0; c < C; ++c)
      sum += expOf(z[r * C + c] - most);
    int y = I32(FIELD_Y)[r];
    total += (logOf(sum) - (z[r * C + y] - most)) / B;
    for (int c = 0; c < C; ++c)
      z[r * C + c] = (expOf(z[r * C + c] - most) / sum - (c == y)) / B;
  }
#ifdef PLANT_LOSS
  total = total - total;
  total = total / total;
#endif
  F32(LOSS)[0] = total;
}

static void gradient(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  int64_t begin, end;
  rows(thread, threads, C, &begin, &end);
  for (int64_t c = begin; c < end; ++c) {
    for (int i = 0; i < I; ++i) {
      float sum = F32(DW)[c * I + i];
      for (int r = 0; r < MB; ++r)
        sum += F32(LOGITS)[r * C + c] *
               (mask(context[2], context[0], context[1] + r, i) ? F32(FIELD_X)[r * I + i] : 0);
      F32(DW)[c * I + i] = sum;
    }
    float sum = F32(DB)[c];
    for (int r = 0; r < MB; ++r)
      sum += F32(LOGITS)[r * C + c];
    F32(DB)[c] = sum;
  }
}

static void norm(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  if (thread)
    return;
  float sum = 0;
  for (int i = 0; i < C * I; ++i)
    sum += F32(DW)[i] * F32(DW)[i];
  for (int i = 0; i < C; ++i)
    sum += F32(DB)[i] * F32(DB)[i];
  F32(NORM)[0] = __builtin_sqrtf(sum);
  double rate = LR / (1.0 + (double)context[0] / (double)context[3]);
  memcpy(arena + RATE, &rate, 8);
}

static void update(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  int64_t begin, end;
  rows(thread, threads, C * I, &begin, &end);
  double rate;
  memcpy(&rate, arena + RATE, 8);
  for (int64_t i = begin; i < end; ++i) {
    F32(W_M)[i] = 0.9f * F32(W_M)[i] + F32(DW)[i];
    F32(W)[i] -= (float)rate * F32(W_M)[i];
  }
  if (thread == 0)
    for (int c = 0; c < C; ++c) {
      F32(BIAS_M)[c] = 0.9f * F32(BIAS_M)[c] + F32(DB)[c];
      F32(BIAS)[c] -= (float)rate * F32(BIAS_M)[c];
    }
}

static void metrics(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  if (thread)
    return;
  for (int r = 0; r < EMB; ++r) {
    if (!arena[VALID + r])
      continue;
    int best = 0, y = I32(EVAL_Y)[r];
    for (int c = 1; c < C; ++c)
      if (F32(EVAL_LOGITS)[r * C + c] > F32(EVAL_LOGITS)[r * C + best])
        best = c;
    F32(COUNT)[0] += 1;
    F32(ACC)[0] += best == y;
    F32(TABLE)[best * C + y] += 1;
  }
}

static void finish(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  if (thread == 0)
    F32(ACC)[0] /= F32(COUNT)[0];
}

void cinch_train_step(cinch_ctx *ctx) {
  static const int64_t forward[] = {FIELD_X, LOGITS, 1, MB};
  cinch_zero(ctx, DW, C * I * 4);
  cinch_zero(ctx, DB, C * 4);
  cinch_zero(ctx, LOSS, 4);
  for (int64_t m = 0; m < B / MB; ++m) {
    cinch_fill(ctx, 0, m);
    cinch_launch(ctx, 0, logits, forward, 0);
    cinch_launch(ctx, 1, loss, 0, 0);
    cinch_launch(ctx, 2, gradient, 0, 0);
  }
  cinch_launch(ctx, 3, norm, 0, 0);
  if (cinch_gate(ctx))
    cinch_launch(ctx, 4, update, 0, 0);
}

void cinch_eval(cinch_ctx *ctx, int64_t batches) {
  static const int64_t forward[] = {EVAL_X, EVAL_LOGITS, 0, EMB};
  cinch_zero(ctx, ACC, 4);
  cinch_zero(ctx, COUNT, 4);
  cinch_zero(ctx, TABLE, C * C * 4);
  for (int64_t m = 0; m < batches; ++m) {
    cinch_fill(ctx, 1, m);
    cinch_launch(ctx, 5, logits, forward, 0);
    cinch_launch(ctx, 6, metrics, 0, 0);
  }
  cinch_launch(ctx, 7, finish, 0, 0);
}

void cinch_predict(cinch_ctx *ctx, int64_t batches) {
  static const int64_t forward[] = {EVAL_X, EVAL_LOGITS, 0, EMB};
  for (int64_t m = 0; m < batches; ++m) {
    cinch_fill(ctx, 2, m);
    cinch_launch(ctx, 8, logits, forward, 0);
    cinch_emit(ctx, 2, m);
  }
}
