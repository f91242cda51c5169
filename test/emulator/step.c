// step.c: one training step of a compiled program without an operating system. The runtime's functions are replaced by the
// plainest ones; parameters and data are filled from a small generator; what the step leaves in the parameters, the optimizer's
// state and the loss is printed as one hash. table.h (written by cpus.py from the program's metadata) says where they lie.
#include "table.h"
typedef unsigned int u32; typedef unsigned long u64; typedef long i64;
#ifdef EMULATED
static void put(const char *text, int n) { while (n--) { __asm__ volatile("outb %0,$0xe9" : : "a"(*text)); text++; } }
__attribute__((section(".text.start"), naked, used)) void _start(void) {
  __asm__("movq %rsp,%rbx; andq $-64,%rsp; call emulated; movq %rbx,%rsp; ret");
}
static void test(void);
__attribute__((used)) void emulated(void) { put("@@BEGIN\n", 8); test(); put("@@END\n", 6); }
void *memset(void *to, int value, u64 n) { char *p = to; while (n--) *p++ = value; return to; }
void *memcpy(void *to, const void *from, u64 n) { char *p = to; const char *q = from; while (n--) *p++ = *q++; return to; }
#else
#include <unistd.h>
static void put(const char *text, int n) { if (write(1, text, n)) {} }
static void test(void);
int main(void) { test(); return 0; }
#endif

static char arena[ARENA] __attribute__((aligned(64)));
static struct { i64 words[128]; char *arena; int threads, checking; } context;
static u64 state = 88172645463325252ul;
static u32 next(void) { state ^= state << 13; state ^= state >> 7; state ^= state << 17; return (u32)(state >> 16); }

typedef void (*kernel)(char *, const i64 *, i64 *, i64, i64);
void cinch_launch(void *c, int number, kernel k, const i64 *offsets, int alone) {
  for (int t = 0; t < 2; t++) k(arena, offsets, context.words, t, 2);
}
void cinch_zero(void *c, i64 offset, i64 bytes) { for (i64 i = 0; i < bytes; i++) arena[offset + i] = 0; }
void cinch_emit(void *c, int entry, i64 index) {}
int cinch_gate(void *c) { return 1; }
void cinch_fill(void *c, int entry, i64 index) {
  context.words[1] = index * MICROBATCH;
  for (int f = 0; f < FIELDS; f++)
    for (i64 i = 0; i < fields[f].count; i++)
      if (fields[f].below) ((int *)(arena + fields[f].offset))[i] = next() % fields[f].below;
      else ((float *)(arena + fields[f].offset))[i] = (float)(int)next() / 2147483648.0f;
}
void cinch_train_step(void *);
static void test(void) {
  for (i64 i = 0; i < PARAMETER_BYTES / 4; i++) ((float *)arena)[i] = (float)(int)next() / 2147483648.0f * 0.3f;
  context.arena = arena; context.words[2] = 7; context.words[3] = 10; context.threads = 2;
  for (int i = 0; i < VALUES; i++) memcpy(&context.words[8 + values[i].place], &values[i].value, 8);
  u64 hash = 0;
  for (int step = 0; step < 2; step++) {
    context.words[0] = step;
    cinch_train_step(&context);
    for (i64 i = 0; i < PERSISTENT_BYTES / 4; i++) { hash ^= ((u32 *)arena)[i]; hash *= 0x9E3779B97F4A7C15ul; hash ^= hash >> 29; }
    hash ^= *(u32 *)(arena + LOSS); hash *= 0x9E3779B97F4A7C15ul;
  }
  char text[17];
  for (int i = 0; i < 16; i++) text[i] = "0123456789abcdef"[(hash >> (60 - 4 * i)) & 15];
  text[16] = '\n';
  put(text, 17);
}
