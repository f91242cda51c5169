// Version.h: the version of the compiler, which its executables carry, too.
#ifndef CINCH_COMPILER_PHASES_VERSION_H
#define CINCH_COMPILER_PHASES_VERSION_H

namespace cinch {

inline constexpr char kVersion[] = "0.1";

} // namespace cinch
#endif
