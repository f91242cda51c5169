// Units.h: numbers, bytes and seconds as people read them. Every text of the compiler takes them from here.
#ifndef CINCH_COMPILER_SOLVE_UNITS_H
#define CINCH_COMPILER_SOLVE_UNITS_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace cinch::solve {

// The shortest decimal of at least `least` significant digits that reads back as the very same number.
inline std::string exactText(double value, int least = 1) {
  char text[40];
  if (value > -1e6 && value < 1e6 && value == double(int64_t(value))) // 200 rather than 2e+02
    return std::to_string(int64_t(value));
  for (int digits = least; digits <= 17; ++digits) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value)
      break;
  }
  return text;
}

// In the unit that leaves one to four digits before the point: `712 bytes`, `89.8 KiB`, `21.8 MiB`; `digits` behind it.
inline std::string bytesText(int64_t bytes, int digits = 1) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = double(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit)
    value /= 1024;
  char text[40];
  snprintf(text, sizeof text, "%.*f %s", unit == 0 ? 0 : digits, value, units[unit]);
  return text;
}

// Rounded up, of what is typed as a budget: a smallest one of 2540800 bytes is `2.5 MiB`, since 2.4 MiB are fewer.
inline std::string bytesTextUp(int64_t bytes) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024)
    return bytesText(bytes);
  int64_t unit = 1024;
  int number = 0;
  for (; number < 3 && bytes >= unit * 1024; ++number)
    unit *= 1024;
  int64_t tenths = bytes / unit * 10 + (bytes % unit * 10 + unit - 1) / unit;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " " + units[number];
}

inline std::string secondsText(double seconds) {
  char text[40];
  if (seconds < 1e-3)
    snprintf(text, sizeof text, "%.0f us", seconds * 1e6);
  else if (seconds < 1)
    snprintf(text, sizeof text, "%.1f ms", seconds * 1e3);
  else
    snprintf(text, sizeof text, "%.2f s", seconds);
  return text;
}

} // namespace cinch::solve
#endif
