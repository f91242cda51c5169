// recorder.c: a program that learns nothing: every step writes the examples it was given into the parameter `seen`: the
// walk over the data can be read from the final parameters. Its other parameters keep their initial values.
#include "program.h"
#include "runtime/runtime.h"
#include <string.h>

const char cinch_meta[] = META;

static void record(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  for (int64_t r = thread; r < MB; r += threads)
    memcpy(arena + SEEN + 4 * ((context[0] * B + context[1] + r) * WIDTH), arena + FIELD + 4 * r * WIDTH, 4 * WIDTH);
}

void cinch_train_step(cinch_ctx *ctx) {
  cinch_zero(ctx, LOSS, 8);
  for (int64_t m = 0; m < B / MB; ++m) {
    cinch_fill(ctx, 0, m);
    if (ctx->words[0] * B + m * MB < CAPACITY)
      cinch_launch(ctx, 0, record, 0, 0);
  }
  cinch_gate(ctx);
}

void cinch_eval(cinch_ctx *ctx, int64_t batches) {}

// The logits over the next byte or token: the one after the last is the likeliest.
static void next(char *arena, const int64_t *o, int64_t *context, int64_t thread, int64_t threads) {
  if (thread)
    return;
  int vocabulary = VOCABULARY;
  for (int t = 0; t < WIDTH - 1; ++t) {
    int token;
    memcpy(&token, arena + FIELD + 4 * t, 4);
    for (int v = 0; v < vocabulary; ++v) {
      float value = v == (token + 1) % vocabulary ? 4.0f : 0.0f;
      memcpy(arena + LOGITS + 4 * (t * vocabulary + v), &value, 4);
    }
  }
}

void cinch_predict(cinch_ctx *ctx, int64_t batches) {
  for (int64_t m = 0; m < batches; ++m) {
    cinch_fill(ctx, 2, m);
    cinch_launch(ctx, 1, next, 0, 0);
    cinch_emit(ctx, 2, m);
  }
}
