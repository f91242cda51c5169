// peak.cpp: the rate of FMAs of this machine, on registers alone, with no load and no store.
//
//   bench_peak [--threads N] [--seconds S]
//
// Built for the machine it runs on: vectors are as wide as it has them, and there are more chains than an FMA takes cycles on both ports.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <immintrin.h>
#include <pthread.h>
#include <thread>
#include <vector>

namespace {

#ifdef __AVX512F__
using Vector = __m512;
Vector all(float value) { return _mm512_set1_ps(value); }
Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
#else
using Vector = __m256;
Vector all(float value) { return _mm256_set1_ps(value); }
Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
#endif
constexpr int kChains = 12, kLanes = sizeof(Vector) / 4;
constexpr long kTrips = 20000;

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

// The value is needed, in a register, whatever the compiler thinks.
#ifdef __AVX512F__
void use(Vector &value) { asm volatile("" : "+v"(value)); }
#else
void use(Vector &value) { asm volatile("" : "+x"(value)); }
#endif

#ifdef __AVX512BF16__
void dotStep(Vector (&chains)[kChains], __m512bh a, __m512bh b) {
#pragma GCC unroll 12
  for (Vector &chain : chains)
    chain = _mm512_dpbf16_ps(chain, a, b);
}
#endif

void chainsOf(bool bf16) {
  Vector chains[kChains], a = all(0.5f), b = all(0.25f);
  std::fill(std::begin(chains), std::end(chains), all(1.0f));
  for (long trip = 0; trip < kTrips; ++trip) {
#ifdef __AVX512BF16__
    if (bf16) {
      dotStep(chains, (__m512bh)a, (__m512bh)b);
      continue;
    }
#endif
#pragma GCC unroll 12
    for (Vector &chain : chains)
      chain = fma(chain, a, b);
  }
#pragma GCC unroll 12
  for (Vector &chain : chains)
    use(chain);
  (void)bf16;
}

// The quickest trip of all threads at once counts, in GFLOP/s.
double peakOf(int threads, double seconds, bool bf16) {
  pthread_barrier_t together;
  pthread_barrier_init(&together, nullptr, unsigned(threads));
  double best = 0;
  bool more = true;
  auto work = [&](int thread) {
    for (double end = now() + seconds; more;) {
      pthread_barrier_wait(&together);
      double start = now();
      chainsOf(bf16);
      pthread_barrier_wait(&together);
      if (thread == 0) {
        best = std::max(best, 2.0 * (bf16 ? 2 : 1) * kChains * kLanes * double(kTrips) * threads / (now() - start) * 1e-9);
        more = now() < end;
      }
      pthread_barrier_wait(&together);
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread)
    others.emplace_back(work, thread);
  work(0);
  for (std::thread &other : others)
    other.join();
  pthread_barrier_destroy(&together);
  return best;
}

} // namespace

int main(int argc, char **argv) {
  int threads = 1;
  double seconds = 0.3;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--threads"))
      threads = std::max(1, std::atoi(argv[i + 1]));
    else if (!std::strcmp(argv[i], "--seconds"))
      seconds = std::atof(argv[i + 1]);
  }
  std::printf("RESULT peak.f32 %.1f\n", peakOf(threads, seconds, false));
#ifdef __AVX512BF16__
  std::printf("RESULT peak.bf16 %.1f\n", peakOf(threads, seconds, true));
#endif
}
