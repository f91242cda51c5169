// UserFolder.h: where this user keeps files of one kind (caches, settings), and ours among them.
#ifndef CINCH_COMPILER_SOLVE_USERFOLDER_H
#define CINCH_COMPILER_SOLVE_USERFOLDER_H

#include <string>

namespace cinch::solve {

// "cinch" in the folder that the environment variable names, else in `underHome` of the home; empty if there is neither.
std::string userFolder(const char *variable, const char *underHome);

} // namespace cinch::solve
#endif
