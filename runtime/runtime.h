/* runtime.h: the flat C interface between a compiled training program and the runtime linked into it.
 *
 * The compiler emits one object with
 *   - const char cinch_meta[]            one JSON text (NUL-terminated): everything the runtime must know; see METADATA.md
 *   - void cinch_train_step(cinch_ctx*)  one optimizer step: what is the same for all examples, loops over the micro-batches, gate, update
 *   - void cinch_eval(cinch_ctx*, int64_t batches)     `batches` micro-batches, and what stands around their loop
 *   - void cinch_predict(cinch_ctx*, int64_t batches)  likewise
 * The runtime has main() and the functions below, which are the only outside calls of that object.
 */
#ifndef CINCH_RUNTIME_H
#define CINCH_RUNTIME_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* What kernels see: context words
 *   0  step (0 in eval and predict)
 *   1  first example of the micro-batch, counted within the batch (eval and predict: within the data set)
 *   2  seed
 *   3  steps of the whole training: the horizon of schedules
 *   4  first position of a block of positions; 0 outside loops over blocks of rows, which set words 1 and 4 themselves
 *   5  number of the worker (0 in programs of one)
 *   6, 7  where steps overlap (meta.overlaps), for cinch_train_step: 1 if nothing of the step is done yet; 1 if it shall go on with the next
 *         step, whose number word 0 has while it does. What kernels of a GPU see there: word 0 -1: the number that the device counts
 *         (compiler/target/DeviceControl.h); word 6: 1 if the kernel stands behind the gate and does nothing if that is closed
 *   8 and behind: the run's values, f64, as meta.values numbers them */
typedef struct cinch_ctx {
  int64_t words[128];
  char *arena;      /* the worker's; of a program of one worker 2 MiB-aligned, meta.arena_bytes long */
  int32_t threads;
  int32_t checking; /* replay after a failed gate. 1: every launch's outputs are scanned for NaN and infinity; 2: launches with
                       bad ones are explained before they run */
} cinch_ctx;

/* A kernel's part `thread` of 0..threads-1: each is done once, by any thread of the pool. */
typedef void (*cinch_kernel)(char *arena, const int64_t *offsets, int64_t *context, int64_t thread, int64_t threads);

/* Runs all parts of a kernel and returns when they are done. `launch` is its number in meta.launches. `alone`: it is so
 * small that the calling thread does it as one part. */
void cinch_launch(cinch_ctx *, int32_t launch, cinch_kernel, const int64_t *offsets, int32_t alone);
/* Sets `bytes` bytes at `offset` of the arena to 0 (accumulators at the start of a step). */
void cinch_zero(cinch_ctx *, int64_t offset, int64_t bytes);
/* Copies `bytes` bytes from `from` to `to`, which do not overlap. */
void cinch_copy(cinch_ctx *, int64_t to, int64_t from, int64_t bytes);
/* Writes the word over them again and again: what a largest, a smallest or a product starts from. */
void cinch_set(cinch_ctx *, int64_t offset, int64_t bytes, int64_t word);
/* Brings micro-batch `index` of the current batch into the entry's field buffers that lie in the worker's arena and sets
 * words[1] to its first example; the batch is that of step words[0]. Micro-batches may come in any order, and more than once. */
void cinch_fill(cinch_ctx *, int32_t entry, int64_t index);
/* Hands the results of micro-batch `index` of cinch_predict to whoever asked (reads meta.entries[entry].results). */
void cinch_emit(cinch_ctx *, int32_t entry, int64_t index);
/* The gate of P5: loss and gradient norm (f32 or f64 scalars as meta says) lie at the byte offsets meta.gate gives. Returns 1
 * if both are finite: the update follows. 0: the parameters are untouched, the step ends. All workers call it, with the same
 * bits, and get the same answer. */
int32_t cinch_gate(cinch_ctx *);

/* State, or a value of a loop, in pinned memory beside a GPU (meta.host_bytes): copy number `copy` of the step begins, from `host` in pinned memory to `offset` of the
 * arena, or back, when all that was asked for before is done, and goes on beside what is asked for next, which waits for its end from
 * cinch_await on. In a loop a number begins anew in each trip, when it has been waited for. */
void cinch_fetch(cinch_ctx *, int32_t copy, int64_t offset, int64_t host, int64_t bytes);
void cinch_store(cinch_ctx *, int32_t copy, int64_t offset, int64_t host, int64_t bytes);
void cinch_await(cinch_ctx *, int32_t copy);

/* Programs of several workers: each runs its part of the same entry at the same time, with a context and an arena of its own.
 * Hands over `bytes` bytes at `offset` of the worker's arena; on return they may be overwritten. They go through the channel
 * (meta.channels) in as many messages as it takes, and wait while it holds as many as it has boxes. */
void cinch_send(cinch_ctx *, int32_t channel, int64_t offset, int64_t bytes);
/* Waits for the next `bytes` bytes of the channel, first in, first out, which were sent together, and leaves them at `offset`. */
void cinch_receive(cinch_ctx *, int32_t channel, int64_t offset, int64_t bytes);
/* Likewise, and adds them to what is there, f32 or (`wide`) f64 numbers: (came + there) + 0.0. With `--all-reduce mpi` the library adds them
 * meanwhile: they, and the sums that the first replica has sent, are there behind cinch_await_sums, and nothing touches them before. */
void cinch_receive_sum(cinch_ctx *, int32_t channel, int64_t offset, int64_t bytes, int32_t wide);
void cinch_await_sums(cinch_ctx *);

#ifdef __cplusplus
}
#endif
#endif
