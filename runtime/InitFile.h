// InitFile.h: parameters from a safetensors file: of this program, of a like one, or of another framework.
#ifndef CINCH_RUNTIME_INITFILE_H
#define CINCH_RUNTIME_INITFILE_H

namespace cinch::rt {

// Brings the parameters of --init FILE or, without it, of `init` of the program into the arena, through --names and with
// --partial as they say. Gives the file's path; null: neither is given. Leaves with kData if the file does not fit, kUsage if the flags do not.
const char *loadInitFile();
// Leaves as loadInitFile does if the file of `init` of the program does not fit, and changes no parameter.
void checkInitFile();

// The parameters of a file that this program has written itself; leaves with kData if it does not fit.
void loadParameterFile(const char *path);

} // namespace cinch::rt
#endif
