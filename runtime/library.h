/* A model and its training as a library, made by `cinch FILE --emit=lib`. It is the same program as the executable: the same numbers
 * for the same batches, bit for bit, under any number of threads, in one block of memory of a size fixed when compiling.
 *
 *   - A process has one such model (of each shared library). One thread at a time calls; the library starts its own threads. A call
 *     while another one is running returns 2, "another call is running", and changes nothing.
 *   - The thread that calls needs 64 KiB of stack. The library writes nothing to standard output or error while all goes well.
 *   - A shared library stays in the process: dlclose does not take it out, since its threads run on.
 *   - After fork() the child may not call: the library's threads are not there, and every call returns 2. A process that was forked
 *     before cinch_model_init has a model of its own.
 *   - Every function returns 0, or what the executable would exit with: 2 wrong use, 3 wrong data, 4 a number that is not finite,
 *     5 resources, 70 a fault of Cinch. cinch_model_error then says why. After 2, 3 and 4 the model is as it was before the call.
 *   - A field is an array of examples, one behind the other, row-major, as the model sees them: `scale` and `normalize` of the data
 *     block are done already. Elements: float (double in precision f64), int32_t, or unsigned char for bool.
 *   - `fields` has a pointer for each field of the data that the program trains on, in their order; NULL for what a call does not read.
 *   - Made for a GPU (--target nvidia), it works there, in the device's primary context. The context of CUDA that was current on the calling thread, or
 *     none, is current again when a call returns. And what a pointer of a parameter shows is a copy of it: once one was asked for,
 *     all parameters are copied to the GPU before each call that computes, and from there behind it.
 */
#ifndef CINCH_LIBRARY_H
#define CINCH_LIBRARY_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Something that has a name. `dtype`: F32, F64, I32 or BOOL; `shape`: of a parameter, or of one example of a field or result. */
typedef struct cinch_value {
  const char *name, *dtype;
  int64_t rank;
  int64_t shape[12];
  void *data; /* of a parameter: where it lies, to be read and written between calls; otherwise NULL */
} cinch_value;

/* Allocates the memory, on which `threads` threads work (0: the processors, at most what was compiled for), and gives the parameters
 * their initial values. Those of a program with `init "file"` come from that file, looked for from the current folder; where it is not there,
 * cinch_model_load has to come before the first other call. 3: it is there, and does not fit; after the first call there is no model yet, then.
 * Again: from initial values anew, at step 0, with the threads of the first call. */
int cinch_model_init(int64_t threads);
/* What the last call that failed was about; to be asked by the thread that made it. */
const char *cinch_model_error(void);

/* A value of the run, as --set of the executable takes it: "lr=3e-4", "steps=1000". The seed is set before cinch_model_init: once it was changed
 * after that, other calls return 2 until cinch_model_init is called again. */
int cinch_model_set(const char *key_and_value);
/* Parameters from a safetensors file, and to one that is what the executable calls final.safetensors. Load: 3 where the file does not fit, a number
 * beyond the range of f32 included. Save, 4: a parameter that is trained was finite
 * when it came, and is not any more; nothing was written. 2: of a field that is normalized, nobody has said the mean and the deviation; they lie
 * beside the parameters, in such files, too, or where cinch_model_parameter shows them. */
int cinch_model_load(const char *path);
int cinch_model_save(const char *path);

/* One step of training on a batch (cinch_model_batch examples); `loss`, if not NULL, takes its loss. 4: loss or gradient norm are
 * not finite, and nothing was changed. */
int cinch_model_step(const void *const *fields, double *loss);
/* The metrics over any number of examples: one after the other, in their order, all values of each; the loss is the first. Where the program compares
 * groups of examples (group_all), those behind the last whole group are left out; 3 if there is none. */
int cinch_model_evaluate(const void *const *fields, int64_t examples, double *metrics);
/* The results for any number of examples: `results` has a pointer for each, NULL for one that is not wanted. */
int cinch_model_predict(const void *const *fields, int64_t examples, void *const *results);

int64_t cinch_model_batch(void); /* 0: it failed */
int64_t cinch_model_steps_done(void);

/* Number `index` of a kind, from 0; 2 behind the last. */
enum { CINCH_PARAMETER, CINCH_FIELD, CINCH_METRIC, CINCH_RESULT };
int cinch_model_value(int kind, int64_t index, cinch_value *value);
/* A parameter, or a state of the model, by its path: "blocks.3.attn.wqkv". */
int cinch_model_parameter(const char *path, cinch_value *value);

#ifdef __cplusplus
}
#endif
#endif
