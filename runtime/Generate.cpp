// Generate.cpp: `generate`: the next token is drawn from the model's last logits, again and again. The draw is a
// function of (seed, position), so the same call writes the same text.
#include "runtime/Device.h"
#include "runtime/Output.h"
#include "runtime/Random.h"
#include "runtime/Run.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace cinch::rt {

namespace {

struct Logits {
  const char *at;
  Elem elem;
  int64_t count;
  double operator[](int64_t i) const {
    return elem == Elem::F64 ? reinterpret_cast<const double *>(at)[i] : double(reinterpret_cast<const float *>(at)[i]);
  }
};

// The `k` likeliest, by a heap with the least likely on top; ties go to the lower number.
struct Top {
  int32_t *heap;
  int64_t size = 0;
  const Logits *logits;
  bool less(int32_t a, int32_t b) const {
    double x = (*logits)[a], y = (*logits)[b];
    return x < y || (x == y && a > b);
  }
  void sink(int64_t i) {
    for (;;) {
      int64_t least = i, left = 2 * i + 1;
      for (int64_t child = left; child < left + 2 && child < size; ++child)
        if (less(heap[child], heap[least]))
          least = child;
      if (least == i)
        return;
      int32_t kept = heap[i];
      heap[i] = heap[least];
      heap[least] = kept;
      i = least;
    }
  }
  void offer(int32_t token, int64_t k) {
    if (size < k) {
      heap[size++] = token;
      if (size == k)
        for (int64_t i = k / 2; i >= 0; --i)
          sink(i);
    } else if (less(heap[0], token)) {
      heap[0] = token;
      sink(0);
    }
  }
};

// A token at -inf is never drawn. Any other number that is not finite, or nothing but -inf, says nothing about the next token.
void checkLogits(const Logits &logits, int64_t number) {
  bool any = false;
  for (int64_t i = 0; i < logits.count; ++i) {
    const double value = logits[i];
    if (value != value || value == __builtin_inf())
      fail(kNumeric, "generate: token %lld cannot be drawn: the model's logit of token %lld is %s; look for numbers that are not finite in its parameters",
           (long long)number + 1, (long long)i, value != value ? "nan" : "inf");
    any |= value > -__builtin_inf();
  }
  if (!any)
    fail(kNumeric, "generate: token %lld cannot be drawn: the model's logits of all tokens are -inf", (long long)number + 1);
}

int32_t likeliest(const Logits &logits) {
  int32_t best = 0;
  for (int64_t i = 1; i < logits.count; ++i)
    if (logits[i] > logits[best])
      best = int32_t(i);
  return best;
}

int32_t drawToken(const Logits &logits, double temperature, int64_t topK, int32_t *heap, double u) {
  int32_t best = likeliest(logits);
  if (temperature == 0 || topK == 1)
    return best;
  Top top = {heap, 0, &logits};
  bool all = topK == 0 || topK >= logits.count;
  if (!all)
    for (int64_t i = 0; i < logits.count; ++i)
      top.offer(int32_t(i), topK);
  int64_t count = all ? logits.count : top.size;
  auto weight = [&](int64_t i) { return expOf((logits[all ? i : top.heap[i]] - logits[best]) / temperature); };
  double sum = 0;
  for (int64_t i = 0; i < count; ++i)
    sum += weight(i);
  double left = u * sum;
  for (int64_t i = 0; i < count; ++i) {
    left -= weight(i);
    if (left < 0)
      return all ? int32_t(i) : top.heap[i];
  }
  return best;
}

int64_t readPrompt(int32_t *tokens, int64_t capacity, bool bytes, int64_t vocabulary) {
  const char *at = run.options.prompt;
  int64_t count = 0;
  while (*at) {
    int64_t token;
    if (bytes) {
      token = static_cast<unsigned char>(*at++);
    } else {
      char *end;
      errno = 0;
      token = strtoll(at, &end, 10);
      if (errno)
        fail(kUsage, "--prompt: the token %.*s is outside 0 .. %lld", int(end - at), at, (long long)vocabulary - 1);
      if (end == at)
        fail(kUsage, "--prompt: this model reads tokens; expected numbers with spaces or commas between them, got `%s`",
             at);
      at = end;
      while (*at == ' ' || *at == ',')
        ++at;
    }
    if (token < 0 || token >= vocabulary)
      fail(kUsage, "--prompt: the token %lld is outside 0 .. %lld", (long long)token, (long long)vocabulary - 1);
    if (count == capacity) { // only the end of a long prompt fits the window
      memmove(tokens, tokens + 1, size_t(capacity - 1) * 4);
      --count;
    }
    tokens[count++] = int32_t(token);
  }
  if (count == 0)
    tokens[count++] = bytes && vocabulary > '\n' ? '\n' : 0;
  return count;
}

void write(int32_t token, bool bytes) {
  char text[16];
  int n = bytes ? (text[0] = char(token), 1) : snprintf(text, sizeof text, "%d ", token);
  put(text, size_t(n));
  needAllSaid(); // for a reader that went away nothing more is computed
}

} // namespace

void generateCommand() {
  const Meta &meta = run.meta;
  const Entry *predict = meta.entry("predict");
  if (meta.textField < 0 || !predict || !cinch_predict || predict->results.size <= meta.textResult)
    fail(kUsage, "this program does not generate: that needs a model from a window of tokens to logits over the next, and "
                 "if it has `predict` clauses, one for these logits");
  const EntryValue &result = predict->results[meta.textResult];
  const int64_t vocabulary = meta.textVocabulary, places = result.shape.count() / (vocabulary > 0 ? vocabulary : 1);
  if (vocabulary < 1 || places < 1 || places * vocabulary != result.shape.count() || places > meta.textLength)
    failInternal("logits of shape %s meet a window of %lld and a vocabulary of %lld", describe(result.shape).text,
                 (long long)meta.textLength, (long long)vocabulary);
  bool bytes = strcmp(meta.datasets[meta.trainDataset].source, "tokens") != 0;
  int64_t width = places; // the field may be wider than what the model reads of it
  for (const EntryField &field : predict->fields)
    if (field.index == meta.textField && field.bytes / (4 * predict->microbatch) > width)
      width = field.bytes / (4 * predict->microbatch);
  int32_t *window = allocateArray<int32_t>(width + 1);
  int32_t *heap = allocateArray<int32_t>(run.options.topK < vocabulary ? run.options.topK + 1 : 1);
  int64_t count = readPrompt(window, places, bytes, vocabulary);
  prepareArena(false);
  loadParameters();
  run.mode = Run::Generating;
  run.window = window;
  const uint64_t key = streamKey(run.options.seed, "generate");
  if (bytes)
    put(run.options.prompt, strlen(run.options.prompt));
  for (int64_t i = 0; i < run.options.length; ++i) {
    setWord(kStep, 0);
    callWorkers(EntryCall::Predict, 1);
    fromDevice(result.offset, count * vocabulary * bytesOf(result.elem));
    Logits logits = {arenaAt(result.offset) + (count - 1) * vocabulary * bytesOf(result.elem), result.elem, vocabulary};
    checkLogits(logits, i);
    double u = uniform53(philox(key, uint32_t(i), uint32_t(uint64_t(i) >> 32), 0, kGeneration), 0);
    int32_t token = drawToken(logits, run.options.temperature, run.options.topK, heap, u);
    write(token, bytes);
    if (count == places) {
      memmove(window, window + 1, size_t(places - 1) * 4);
      --count;
    }
    window[count++] = token;
  }
  put("\n", 1);
}

} // namespace cinch::rt
