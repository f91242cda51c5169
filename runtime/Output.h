// Output.h: what the trained binary says. Results and progress go to standard output, warnings and errors to standard
// error.
#ifndef CINCH_RUNTIME_OUTPUT_H
#define CINCH_RUNTIME_OUTPUT_H
#include <stddef.h>
#include <stdint.h>

namespace cinch::rt {

enum Exit { kDone = 0, kUsage = 2, kData = 3, kNumeric = 4, kResources = 5, kInternal = 70, kSaved = 75 };

// A text of bounded length, built piece by piece; what does not fit is dropped.
struct Text {
  char data[4096];
  size_t size = 0;
  Text() { data[0] = 0; }
  void add(const char *format, ...) __attribute__((format(printf, 2, 3)));
  void addQuoted(const char *text); // as a string of JSON
};

// If it is set, failures go there instead of ending the process; it does not return.
extern void (*onFailure)(int code, const char *text);

void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Writes to standard output as it is.
void put(const char *data, size_t size);
// A run goes on when nobody can read what it says. A command whose result is what it prints calls this behind it: leaves with kResources if
// something that say or put wrote did not get through.
void needAllSaid();
void warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Prints `error: ..` and leaves with `code`.
[[noreturn]] void fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
// A contradiction between the compiled program and the runtime: never the user's fault. Says so and leaves with
// kInternal.
[[noreturn]] void failInternal(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Leaves with `code`, and a message was printed already if it is not kDone.
[[noreturn]] void leave(int code);
// Called by fail, failInternal and leave, with what was printed: tells the other processes of the run. Null: there are none.
extern void (*beforeLeaving)(int code, const char *message);
// Prints `error: ..` and returns.
void sayLastWords(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Prints a line to standard error, of any worker and with --quiet, too: whoever looks at a run that stands still has to know why.
void sayAnyway(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Workers other than 0 only say what is wrong, and who they are.
void speakAs(int64_t worker);

// The progress bar of a terminal: redrawn in place, wiped before anything else is said.
void showBar(const Text &);
void wipeBar();
bool onTerminal();
int terminalWidth();

// The shortest decimal that reads back as the very same number (as f32 if `single`).
const char *exact(char (&buffer)[40], double value, bool single);
// 1536 -> "1.5 KiB".
const char *humanBytes(char (&buffer)[40], int64_t bytes);
// Seconds as 1:02:03 or 2:03.
const char *humanTime(char (&buffer)[40], double seconds);

} // namespace cinch::rt
#endif
