// Profile.h: what a machine was measured to reach, as a file. `cinch calibrate` writes it, the cost model reads it.
#ifndef CINCH_COMPILER_ANALYSIS_PROFILE_H
#define CINCH_COMPILER_ANALYSIS_PROFILE_H

#include "compiler/analysis/Rates.h"
#include "compiler/kernels/Tiling.h"

#include <string>

namespace cinch::analysis {

struct Profile {
  std::string cpu;    // LLVM's name of the CPU that was measured
  int processors = 0; // threads that run at once
  std::vector<std::pair<int, MachineRates>> measured; // by rising number of threads
  kernels::TileTable tiles; // of products that were measured one by one (`cinch calibrate --tune`)
};

std::string profileText(const Profile &); // JSON
// Whether the text is a profile of some version, which may have faults.
bool isProfile(const std::string &text);
// False, with what is wrong, if the text is no profile.
bool parseProfile(const std::string &text, Profile &profile, std::string &error);

// $XDG_CONFIG_HOME/cinch/profile.json, else ~/.config/cinch/profile.json, else empty.
std::string defaultProfilePath();

} // namespace cinch::analysis
#endif
