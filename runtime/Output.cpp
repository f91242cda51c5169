// Output.cpp: messages without stdio's streams, so that nothing is buffered, allocated or lost at _exit.
#include "runtime/Output.h"
#include "runtime/Files.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace cinch::rt {

static bool barShown = false;
static bool onlyErrors = false;
static char speaker[32] = "";
void (*beforeLeaving)(int code, const char *message) = nullptr;

void Text::add(const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(data + size, sizeof data - size, format, args);
  va_end(args);
  if (n > 0)
    size = size + size_t(n) < sizeof data ? size + size_t(n) : sizeof data - 1;
}

void Text::addQuoted(const char *text) {
  add("\"");
  for (; *text; ++text)
    if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ')
      add("\\u%04x", unsigned((unsigned char)*text));
    else
      add("%c", *text);
  add("\"");
}

static int unsaid = 0; // why the first text that did not get to standard output did not

void put(const char *data, size_t size) {
  if (!writeAll(1, data, size) && !unsaid)
    unsaid = errno;
}

void needAllSaid() {
  if (unsaid)
    fail(kResources, "cannot write to standard output: %s", strerror(unsaid));
}

static void sayTo(int fd, const char *prefix, const char *format, va_list args) {
  char line[4096];
  size_t size = strlen(prefix);
  memcpy(line, prefix, size);
  int n = vsnprintf(line + size, sizeof line - size - 1, format, args);
  if (n > 0)
    size = size + size_t(n) < sizeof line - 1 ? size + size_t(n) : sizeof line - 2;
  line[size++] = '\n';
  wipeBar();
  if (fd == 1)
    put(line, size);
  else
    (void)writeAll(fd, line, size);
}

void speakAs(int64_t worker) {
  onlyErrors = true;
  snprintf(speaker, sizeof speaker, "worker %lld: ", (long long)worker);
}

void say(const char *format, ...) {
  if (onlyErrors)
    return;
  va_list args;
  va_start(args, format);
  sayTo(1, "", format, args);
  va_end(args);
}

void warn(const char *format, ...) {
  if (onlyErrors)
    return;
  va_list args;
  va_start(args, format);
  sayTo(2, "warning: ", format, args);
  va_end(args);
}

void sayAnyway(const char *format, ...) {
  va_list args;
  va_start(args, format);
  sayTo(2, "", format, args);
  va_end(args);
}

// The last words, and whoever else is part of this run hears them.
static void sayLast(int code, const char *kind, const char *format, va_list args) {
  Text prefix;
  prefix.add("%s%s", kind, speaker);
  va_list again;
  va_copy(again, args);
  sayTo(2, prefix.data, format, args);
  if (beforeLeaving && code >= 0) {
    char words[1024];
    vsnprintf(words, sizeof words, format, again);
    beforeLeaving(code, words);
  }
  va_end(again);
}

void sayLastWords(const char *format, ...) {
  va_list args;
  va_start(args, format);
  sayLast(-1, "error: ", format, args);
  va_end(args);
}

void (*onFailure)(int code, const char *text) = nullptr;

// Hands the text to onFailure, if there is one.
static void handOver(int code, const char *format, va_list args) {
  if (!onFailure)
    return;
  static char text[1024];
  vsnprintf(text, sizeof text, format, args);
  onFailure(code, text);
}

void fail(int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  handOver(code, format, args);
  sayLast(code, "error: ", format, args);
  va_end(args);
  dropSharedFile();
  _exit(code);
}

void leave(int code) {
  if (beforeLeaving)
    beforeLeaving(code, "");
  exit(code);
}

void failInternal(const char *format, ...) {
  va_list args;
  va_start(args, format);
  handOver(kInternal, format, args);
  sayLast(kInternal, "internal error: ", format, args);
  va_end(args);
  static const char advice[] =
      "This is a fault of Cinch, not of your program or your data. Another plan may avoid it and gives the same numbers:\n"
      "compile again with `--microbatch N`, or with another `--memory-budget`. Please report it to the authors of Cinch,\n"
      "with the program and the command lines of the compiler and of this run.\n";
  (void)writeAll(2, advice, sizeof advice - 1);
  dropSharedFile();
  _exit(kInternal);
}

bool onTerminal() {
  static int answer = -1;
  if (answer < 0)
    answer = isatty(1);
  return answer == 1;
}

int terminalWidth() {
  struct winsize window;
  if (ioctl(1, TIOCGWINSZ, &window) == 0 && window.ws_col > 20)
    return window.ws_col;
  return 80;
}

void showBar(const Text &text) {
  (void)writeAll(1, "\r\033[K", 4);
  (void)writeAll(1, text.data, text.size);
  barShown = true;
}

void wipeBar() {
  if (!barShown)
    return;
  barShown = false;
  (void)writeAll(1, "\r\033[K", 4);
}

const char *exact(char (&buffer)[40], double value, bool single) {
  if (value != value) // without the sign that it may carry
    return strcpy(buffer, "nan");
  if (value > -1e6 && value < 1e6 && value == double(int64_t(value))) { // 200 rather than 2e+02
    snprintf(buffer, sizeof buffer, "%.0f", value);
    return buffer;
  }
  for (int digits = 1; digits <= 17; ++digits) {
    snprintf(buffer, sizeof buffer, "%.*g", digits, value);
    if (single ? strtof(buffer, nullptr) == float(value) : strtod(buffer, nullptr) == value)
      break;
  }
  return buffer;
}

const char *humanBytes(char (&buffer)[40], int64_t bytes) {
  static const char *units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = double(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4)
    value /= 1024, ++unit;
  snprintf(buffer, sizeof buffer, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return buffer;
}

const char *humanTime(char (&buffer)[40], double seconds) {
  if (!(seconds >= 0 && seconds < 1e9))
    seconds = 0;
  long whole = long(seconds + 0.5);
  if (whole >= 3600)
    snprintf(buffer, sizeof buffer, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
  else
    snprintf(buffer, sizeof buffer, "%ld:%02ld", whole / 60, whole % 60);
  return buffer;
}

} // namespace cinch::rt
