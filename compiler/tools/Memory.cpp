// Memory.cpp: how jemalloc, which the compiler takes its memory from, goes about it. One arena serves the few threads that there are, and what is free
// goes back to the system soon: so the compiler takes about as much as with the C library's memory (test/execute/deep.py has limits).
extern "C" {
const char *malloc_conf = "narenas:1,dirty_decay_ms:50,muzzy_decay_ms:0";
}
