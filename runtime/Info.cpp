// Info.cpp: `info`: what this program is, or its parameters. Nothing is opened or allocated for it.
#include "runtime/Dataset.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include "runtime/Values.h"

namespace cinch::rt {

// A line for each: what a script reads, and who writes a `names` block.
static void listParameters(const Meta &meta) {
  for (const Parameter &parameter : meta.parameters)
    say("%s %s%s%s", parameter.path, nameOf(parameter.elem), describe(parameter.shape).text,
        parameter.averageOf ? " average" : parameter.state ? " state" : parameter.frozen ? " frozen" : "");
}

void infoCommand() {
  const Meta &meta = run.meta;
  if (run.options.parameters)
    return listParameters(meta);
  char human[40];
  int64_t bytes = 0, tensors = 0, states = 0, state = 0;
  for (const Parameter &parameter : meta.parameters) {
    tensors += !parameter.state;
    (parameter.state ? states : bytes) += parameter.bytes();
  }
  for (const Stored &slot : meta.slots)
    state += slot.bytes();
  say("program      %s (%s), compiled by Cinch %s, hash %s", meta.program, meta.source, meta.version, meta.hash);
  say("numbers      %s, seed %llu", meta.f64 ? "f64" : meta.bf16 ? "bf16, parameters and sums f32" : "f32", (unsigned long long)meta.seed);
  say("parameters   %lld in %lld tensors, %s; optimizer state %lld bytes", (long long)meta.parameterCount(),
      (long long)tensors, humanBytes(human, bytes), (long long)state);
  if (states)
    say("state        %lld tensors of the model, %s", (long long)(meta.parameters.size - tensors), humanBytes(human, states));
  if (meta.steps)
    say("training     batch %lld, %lld steps on `%s`", (long long)meta.batch, (long long)meta.steps,
        meta.datasets[meta.trainDataset].name);
  else
    say("training     batch %lld, %lld epochs of `%s`", (long long)meta.batch, (long long)meta.epochs,
        meta.datasets[meta.trainDataset].name);
  listValues();
  for (const DatasetSpec &spec : meta.datasets)
    for (int64_t i = 0; i < spec.fields.size; ++i) {
      const bool inOrder = takesFilesInOrder(spec);
      const FieldSpec &field = spec.fields[i];
      Text more, made;
      if (inOrder && spec.files.size > 1)
        more.add(" and %lld more", (long long)spec.files.size - 1);
      char number[40];
      if (field.scale != 1)
        made.add(", scale %s", exact(number, field.scale, false));
      if (field.normalize)
        made.add(", normalized");
      say("data         %s.%s: %s%s from %s(%s%s)%s", spec.name, field.name, nameOf(field.elem), describe(field.shape).text, spec.source,
          !inOrder && i < spec.files.size ? spec.files[i] : spec.files[0], more.data, made.data);
    }
  if (const Entry *predict = meta.entry("predict"))
    for (const EntryValue &result : predict->results)
      say("predict      %s: %s%s", result.name, nameOf(result.elem), describe(result.shape).text);
  if (programWorkers() > 1)
    say("workers      %lld, %lld channels", (long long)programWorkers(), (long long)meta.channels.size);
  say("threads      at most %lld%s", (long long)meta.maxThreads, programWorkers() > 1 ? " a worker" : "");
  say("memory       arena %lld bytes (%s), allowance %lld", (long long)meta.arenaBytes,
      humanBytes(human, meta.arenaBytes), (long long)meta.allowance);
  if (meta.budget)
    say("             budget %lld bytes (%s)", (long long)meta.budget, humanBytes(human, meta.budget));
  for (const char *line : meta.plan)
    say("plan         %s", line);
}

} // namespace cinch::rt
