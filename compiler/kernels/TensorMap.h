// TensorMap.h: tensors as copies of boxes by a Hopper see them (TMA); plain C++, no MLIR.
#ifndef CINCH_COMPILER_KERNELS_TENSORMAP_H
#define CINCH_COMPILER_KERNELS_TENSORMAP_H

#include <cstdint>
#include <vector>

namespace cinch::kernels {

// A tensor of bf16 in memory: where it begins, and its axes, the closest one first. The host describes it to the driver when the kernel is
// launched, since that is when its place in the arena is known, and hands what the driver makes of it to the kernel.
struct TensorMap {
  struct Axis {
    int64_t size, stride, box; // elements; bytes from one to the next; how many a copy takes
  };
  int buffer = 0;
  int64_t byte = 0;
  std::vector<Axis> axes; // five at most
};
constexpr int64_t kMapWords = 16; // i64, of a map as the driver encodes it

// Of a function whose kernel gets maps, behind its other arguments: i64s as the runtime's launchOnDevice reads them, that is how many maps,
// and for each its buffer, byte and number of axes, and their sizes, strides and boxes.
constexpr const char *kMapsAttr = "cinch.maps";
inline std::vector<int64_t> wordsOf(const std::vector<TensorMap> &maps) {
  std::vector<int64_t> words = {int64_t(maps.size())};
  for (const TensorMap &map : maps) {
    words.insert(words.end(), {map.buffer, map.byte, int64_t(map.axes.size())});
    for (const TensorMap::Axis &axis : map.axes)
      words.insert(words.end(), {axis.size, axis.stride, axis.box});
  }
  return words;
}

} // namespace cinch::kernels
#endif
