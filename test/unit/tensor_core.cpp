// LINK:
// The model of tensor cores (test/nvidia/TensorCore.h): exact where nothing is lost, cut where its description says.
#include "test/nvidia/TensorCore.h"
#include "test/unit/Expect.h"

#include <cmath>
#include <random>

using namespace tensor;

static uint16_t half(float value) {
  uint32_t word;
  memcpy(&word, &value, 4);
  return uint16_t(word >> 16);
}

struct Row {
  Factors a, b;
  void set(int k, float x, float y) { a.set(k, Factor(half(x))), b.set(k, Factor(half(y))); }
};

static void smallNumbersAreExact(Kind kind) {
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    Row row;
    float sum = float(int(random() % 2001) - 1000), wanted = sum;
    for (int k = 0; k < 16; ++k) {
      int x = int(random() % 255) - 127, y = int(random() % 255) - 127;
      row.set(k, float(x), float(y));
      wanted += float(x * y);
    }
    expect(multiplyAdd(kind, row.a, row.b, sum) == wanted, "small whole numbers");
  }
}

// Beside 2^24 a product of 1 is below the last place of an f32, of which some bits stay until the sum is cut.
static void lowBitsAreCut() {
  for (auto [name, bits] : {std::pair("a100", 1), std::pair("h100", 2)}) {
    Kind kind = kindOf(name);
    for (int below = 0; below < 4; ++below) {
      Row row;
      for (int k = 0; k < 8; ++k)
        row.set(k, std::ldexp(1.0f, -below), 1);
      // Eight times 2^-below, or nothing at all if each is cut away: the last place of 2^24 is 2, cut `bits` further down.
      double each = std::ldexp(1.0, -below), quantum = std::ldexp(2.0, -bits);
      double sum = 0x1p24 + 8 * std::floor(each / quantum) * quantum;
      expect(multiplyAdd(kind, row.a, row.b, 0x1p24f) == float(std::floor(sum / 2) * 2), "low bits beside 2^24");
      expect(multiplyAdd(kind, row.a, row.b, -0x1p24f) == float(-0x1p24 + 8 * std::floor(each / quantum) * quantum), "low bits beside -2^24");
    }
  }
}

// An A100 adds eight products, cuts, and adds eight more: what the second half takes away is then lost, or not.
static void halvesOfA100() {
  Row row;
  row.set(0, 0x1p30f, 1);
  row.set(1, 1, 1);
  row.set(8, -0x1p30f, 1);
  row.set(9, 1, 1);
  expect(multiplyAdd(kindOf("a100"), row.a, row.b, 0) == 0, "two halves of an A100, both cut");
  expect(multiplyAdd(kindOf("h100"), row.a, row.b, 0) == 0, "one sum of an H100");
  row.set(8, 0, 0);
  row.set(9, 3, 1);
  row.set(0, 0x1p23f, 1);
  expect(multiplyAdd(kindOf("a100"), row.a, row.b, 0) == 0x1p23f + 4, "two halves of an A100, none cut");
}

static void specialNumbers(Kind kind) {
  Row row;
  for (int k = 0; k < 16; ++k)
    row.set(k, 0, 0);
  expect(multiplyAdd(kind, row.a, row.b, 1.5f) == 1.5f, "products of zero");
  expect(multiplyAdd(kind, row.a, row.b, 1e-45f) == 1e-45f, "a subnormal sum stays");
  row.set(3, INFINITY, 1);
  expect(multiplyAdd(kind, row.a, row.b, 0) == INFINITY, "an infinity");
  row.set(4, -INFINITY, 1);
  expect(std::isnan(multiplyAdd(kind, row.a, row.b, 0)), "infinities of both signs");
  row.set(3, 0x1p100f, 0x1p100f);
  row.set(4, 0, 0);
  expect(multiplyAdd(kind, row.a, row.b, 0) == INFINITY, "too large for an f32");
}

// A factor of tf32 has three bits more, and a unit takes half as many of them.
static void factorsOfTF32() {
  Factors a, b;
  auto set = [&](int k, float x, float y) {
    for (auto [to, value] : {std::pair(&a, x), std::pair(&b, y)}) {
      uint32_t word;
      memcpy(&word, &value, 4);
      to->set(k, Factor(word, kTF32));
    }
  };
  std::mt19937 random(2);
  for (const char *name : {"a100", "h100"})
    for (int round = 0; round < 1000; ++round) {
      float sum = float(int(random() % 2001) - 1000), wanted = sum;
      for (int k = 0; k < 8; ++k) {
        int x = int(random() % 2047) - 1023, y = int(random() % 2047) - 1023; // eight products and the sum stay below 2^24
        set(k, float(x), float(y));
        wanted += float(x * y);
      }
      expect(multiplyAddOfTF32(kindOf(name), a, b, sum) == wanted, "small whole numbers of tf32");
    }
  for (int k = 0; k < 8; ++k)
    set(k, 0, 0);
  set(0, 0x1p24f, 1), set(1, 1, 1), set(4, -0x1p24f, 1), set(5, 3, 1);
  expect(multiplyAddOfTF32(kindOf("a100"), a, b, 0) == 3, "two fours of an A100, of which the first one's 2^24 + 1 is cut");
  expect(multiplyAddOfTF32(kindOf("h100"), a, b, 0) == 4, "one eight of an H100");
  set(0, 1 + 0x1p-10f, 1 + 0x1p-10f), set(1, 0, 0), set(4, 0, 0), set(5, 0, 0);
  expect(multiplyAddOfTF32(kindOf("a100"), a, b, 0) == 1 + 0x1p-9f + 0x1p-20f, "a product is exact");
}

int main() {
  factorsOfTF32();
  for (const char *name : {"a100", "h100"}) {
    smallNumbersAreExact(kindOf(name));
    specialNumbers(kindOf(name));
  }
  lowBitsAreCut();
  halvesOfA100();
  return tally();
}
