// stages.c: what the compiler would emit for a program of several workers, by hand: LAYERS cheap layers over rows of WIDTH
// numbers, cut into WORKERS stages, GPipe's table or 1F1B's, a gate that all workers see, a metric, predictions. With one
// worker it is the same program without channels, so that bits can be compared. program.h holds layout and description.
// The environment's DELAY makes kernels wait at random, up to so many microseconds.
#include "program.h"
#include "runtime/runtime.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char cinch_meta[] = META;

#define F32(at) ((float *)(arena + (at)))
#define F64(at) ((double *)(arena + (at)))
#define MICROBATCHES (B / MB)

static const int64_t weight[] = WEIGHT, momentum[] = MOMENTUM, gradients[] = GRADIENT, inputs[] = INPUT, outputs[] = OUTPUT,
                     deltas[] = DELTA, field_x = FIELD_X, field_y[] = FIELD_Y, losses[] = LOSS, norms[] = NORM, sums[] = SUMS;

static int stage_of(int layer) { return layer * WORKERS / LAYERS; }
static int first_layer(int stage) {
  int layer = 0;
  while (stage_of(layer) < stage)
    ++layer;
  return layer;
}
static int last_layer(int stage) {
  int layer = LAYERS - 1;
  while (stage_of(layer) > stage)
    --layer;
  return layer;
}

// Channels, as program.py numbers them.
enum { kForward = 0, kBackward = WORKERS - 1, kSums = 2 * (WORKERS - 1), kResult = 3 * (WORKERS - 1), kLogits = 4 * (WORKERS - 1) };

static const int64_t message_bytes[] = MESSAGE_BYTES;
static void send(cinch_ctx *ctx, int channel, int64_t offset) { cinch_send(ctx, channel, offset, message_bytes[channel]); }
static void receive(cinch_ctx *ctx, int channel, int64_t offset) { cinch_receive(ctx, channel, offset, message_bytes[channel]); }

static void dawdle(void) {
  static int most = -1;
  static __thread uint64_t state;
  if (most < 0)
    most = getenv("DELAY") ? atoi(getenv("DELAY")) : 0;
  if (!most)
    return;
  if (!state) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    state = (uint64_t)now.tv_nsec * 2654435761u + (uint64_t)(intptr_t)&state;
  }
  state = state * 6364136223846793005u + 1442695040888963407u;
  usleep((unsigned)((state >> 33) % (unsigned)most));
}

static void rows(int64_t thread, int64_t threads, int64_t n, int64_t *begin, int64_t *end) {
  *begin = n * thread / threads;
  *end = n * (thread + 1) / threads;
}

static void spread(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  int64_t begin, end;
  rows(thread, threads, MB * WIDTH, &begin, &end);
  for (int64_t i = begin; i < end; ++i)
    F32(o[1])[i] = F32(o[0])[i / WIDTH * INPUTS + i % WIDTH % INPUTS];
}

// y = f(x * w[0] + neighbour * w[1]), f(s) = s / (1 + |s|)
static void forward(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  int64_t begin, end;
  const float *x = F32(o[0]), *w = F32(o[1]);
  float *y = F32(o[2]);
  if (thread == 0)
    dawdle();
  rows(thread, threads, WIDTH, &begin, &end);
  for (int r = 0; r < MB; ++r)
    for (int64_t i = begin; i < end; ++i) {
      float s = x[r * WIDTH + i] * w[i] + x[r * WIDTH + (i + 1) % WIDTH] * w[WIDTH + i];
      y[r * WIDTH + i] = s / (1 + fabsf(s));
    }
#ifdef PLANT_STEP
  for (int p = 0; p < (int)(sizeof((int[])PLANTS) / sizeof(int)); p += 2)
    if (thread == 0 && o[4] && context[0] == PLANT_STEP && context[1] == ((int[])PLANTS)[p + 1] && o[3] == ((int[])PLANTS)[p])
      y[2] = INFINITY;
#endif
}

// The loss over rows, and its gradient with respect to the last output.
static void loss(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  if (thread)
    return;
  const float *y = F32(o[0]);
  float *dy = F32(o[1]), total = F32(o[2])[0];
  for (int r = 0; r < MB; ++r)
    for (int i = 0; i < WIDTH; ++i) {
      float difference = y[r * WIDTH + i] - (i % 10 == ((int *)(arena + o[3]))[r]);
      total += difference * difference / (B * WIDTH);
      dy[r * WIDTH + i] = 2 * difference / (B * WIDTH);
    }
  F32(o[2])[0] = total;
}

// o: x, y, w, delta (in: of y, out: of x), gradient of w
static void backward(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  if (thread)
    return;
  dawdle();
  const float *x = F32(o[0]), *y = F32(o[1]), *w = F32(o[2]);
  float *d = F32(o[3]), *g = F32(o[4]);
  for (int r = 0; r < MB; ++r) {
    float before = 0, first = 0;
    for (int i = 0; i < WIDTH; ++i) {
      float a = 1 - fabsf(y[r * WIDTH + i]), s = d[r * WIDTH + i] * a * a;
      g[i] += s * x[r * WIDTH + i];
      g[WIDTH + i] += s * x[r * WIDTH + (i + 1) % WIDTH];
      if (i == 0)
        first = s;
      d[r * WIDTH + i] = s * w[i] + before;
      before = s * w[WIDTH + i];
    }
    (void)first;
    d[r * WIDTH] += before;
  }
}

// o: gradient, place for its sum
static void square(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  if (thread)
    return;
  double sum = 0;
  for (int i = 0; i < 2 * WIDTH; ++i)
    sum += (double)F32(o[0])[i] * F32(o[0])[i];
  F64(o[1])[0] = sum;
}

static void update(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  int64_t begin, end;
  rows(thread, threads, 2 * WIDTH, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    F32(o[1])[i] = 0.9f * F32(o[1])[i] + F32(o[2])[i];
    F32(o[0])[i] -= 0.5f * F32(o[1])[i];
  }
}

static int64_t slot(int64_t base, int64_t m) { return base + m * ROWS_BYTES; }

// Forward of a stage for micro-batch m of an entry; leaves the output of its last layer.
static int64_t stage_forward(cinch_ctx *ctx, int w, int64_t entry, int64_t m, int training) {
  int64_t keep = training ? m : 0;
  int first = first_layer(w), last = last_layer(w);
  cinch_fill(ctx, (int32_t)entry, m);
  if (w == 0) {
    int64_t o[] = {field_x, slot(inputs[0], keep)};
    cinch_launch(ctx, 0, spread, o, 0);
  } else {
    receive(ctx, kForward + w - 1, slot(inputs[first], keep));
  }
  for (int l = first; l <= last; ++l) {
    int64_t into = l < last ? slot(inputs[l + 1], keep) : slot(outputs[w], keep);
    int64_t o[] = {slot(inputs[l], keep), weight[l], into, l, training};
    cinch_launch(ctx, 1 + l, forward, o, 0);
  }
  if (w + 1 < WORKERS)
    send(ctx, kForward + w, slot(outputs[w], keep));
  return slot(outputs[w], keep);
}

static void stage_backward(cinch_ctx *ctx, int w, int64_t m) {
  int first = first_layer(w), last = last_layer(w);
  ctx->words[1] = m * MB;
  if (w + 1 < WORKERS) {
    receive(ctx, kBackward + w, deltas[w]);
  } else {
    cinch_fill(ctx, 0, m);
    int64_t o[] = {slot(outputs[w], m), deltas[w], sums[w] + 8 * LAYERS, field_y[0]};
    cinch_launch(ctx, 1 + LAYERS, loss, o, 0);
  }
  for (int l = last; l >= first; --l) {
    int64_t y = l < last ? slot(inputs[l + 1], m) : slot(outputs[w], m);
    int64_t o[] = {slot(inputs[l], m), y, weight[l], deltas[w], gradients[l]};
    cinch_launch(ctx, 2 + LAYERS + l, backward, o, 0);
  }
  if (w > 0)
    send(ctx, kBackward + w - 1, deltas[w]);
}

// The sum over the layers in their order, and the loss; the same bits for all.
static void agree(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  if (thread)
    return;
  double sum = 0;
  for (int l = 0; l < LAYERS; ++l)
    sum += F64(o[0])[l];
  F32(o[1])[0] = F32(o[0] + 8 * LAYERS)[0];
  F32(o[2])[0] = sqrtf((float)sum);
}
static void merge(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  if (thread == 0)
    memcpy(arena + o[1] + 8 * o[2], arena + o[0] + 8 * o[2], (size_t)(8 * (o[3] - o[2] + 1)));
}

void cinch_train_step(cinch_ctx *ctx) {
  int w = (int)ctx->words[5], first = first_layer(w), last = last_layer(w);
  cinch_zero(ctx, sums[w], 8 * LAYERS + 64);
  for (int l = first; l <= last; ++l)
    cinch_zero(ctx, gradients[l], 8 * WIDTH);
  int64_t ahead = ONE_F_ONE_B ? WORKERS - w : MICROBATCHES; // forwards before the first backward
  for (int64_t i = 0; i < MICROBATCHES + ahead; ++i) {
    if (i < MICROBATCHES)
      stage_forward(ctx, w, 0, i, 1);
    if (i + 1 >= ahead && i + 1 - ahead < MICROBATCHES)
      stage_backward(ctx, w, i + 1 - ahead);
  }
  for (int l = first; l <= last; ++l) {
    int64_t o[] = {gradients[l], sums[w] + 8 * l};
    cinch_launch(ctx, 2 + 2 * LAYERS, square, o, 0);
  }
  if (w == 0) {
    for (int from = 1; from < WORKERS; ++from) {
      receive(ctx, kSums + from - 1, RECEIVED);
      int64_t o[] = {RECEIVED, sums[0], first_layer(from), from == WORKERS - 1 ? LAYERS : last_layer(from)};
      cinch_launch(ctx, 3 + 2 * LAYERS, merge, o, 0);
    }
    int64_t o[] = {sums[0], losses[0], norms[0], sums[0] + 8 * LAYERS};
    cinch_launch(ctx, 4 + 2 * LAYERS, agree, o, 0);
    for (int to = 1; to < WORKERS; ++to)
      send(ctx, kResult + to - 1, losses[0]); // and the norm behind it
  } else {
    send(ctx, kSums + w - 1, sums[w]);
    receive(ctx, kResult + w - 1, losses[w]);
  }
  if (cinch_gate(ctx))
    for (int l = first; l <= last; ++l) {
      int64_t o[] = {weight[l], momentum[l], gradients[l]};
      cinch_launch(ctx, 5 + 2 * LAYERS, update, o, 0);
    }
}

static void metrics(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  if (thread)
    return;
  for (int r = 0; r < MB; ++r) {
    int best = 0, y = ((int *)(arena + o[1]))[r];
    for (int c = 1; c < 10; ++c)
      if (F32(o[0])[r * WIDTH + c] > F32(o[0])[r * WIDTH + best])
        best = c;
    if (arena[o[3] + r]) {
      F32(o[2])[0] += best == y;
      F32(o[2])[1] += 1;
    }
  }
}
static void divide(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  if (thread == 0)
    F32(o[1])[0] = F32(o[0])[0] / F32(o[0])[1];
}

void cinch_eval(cinch_ctx *ctx, int64_t batches) {
  int w = (int)ctx->words[5];
  cinch_zero(ctx, sums[w], 8 * LAYERS + 64);
  for (int64_t m = 0; m < batches; ++m) {
    int64_t y = stage_forward(ctx, w, 1, m, 0);
    int64_t o[] = {y, field_y[0], sums[w], VALID};
    if (w == WORKERS - 1)
      cinch_launch(ctx, 6 + 2 * LAYERS, metrics, o, 0);
  }
  if (WORKERS > 1 && w == WORKERS - 1)
    send(ctx, kSums + w - 1, sums[w]);
  if (w == 0) {
    if (WORKERS > 1)
      receive(ctx, kSums + WORKERS - 2, sums[0]);
    int64_t o[] = {sums[0], ACC};
    cinch_launch(ctx, 7 + 2 * LAYERS, divide, o, 0);
  }
}

void cinch_predict(cinch_ctx *ctx, int64_t batches) {
  int w = (int)ctx->words[5];
  for (int64_t m = 0; m < batches; ++m) {
    int64_t y = stage_forward(ctx, w, 2, m, 0);
    if (WORKERS > 1 && w == WORKERS - 1)
      send(ctx, kLogits, y);
    if (w == 0) {
      if (WORKERS > 1)
        receive(ctx, kLogits, RESULTS);
      cinch_emit(ctx, 2, m);
    }
  }
}
