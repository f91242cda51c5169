// Mutate.h: changes a program token by token (drop, double, swap, replace by one seen anywhere, another number, a line
// away, a few tokens copied), so that much of what comes out still parses and reaches the checker. Same generator
// state, same result.
#ifndef CINCH_TEST_FUZZ_MUTATE_H
#define CINCH_TEST_FUZZ_MUTATE_H

#include <algorithm>
#include <cctype>
#include <random>
#include <string>
#include <vector>

inline bool isWordCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Words, numbers, strings, operators, blanks: each a piece.
inline std::vector<std::string> pieces(const std::string &text) {
  std::vector<std::string> result;
  for (size_t i = 0; i < text.size();) {
    size_t begin = i++;
    if (isWordCharacter(text[begin])) {
      while (i < text.size() && isWordCharacter(text[i]))
        ++i;
    } else if (text[begin] == '"') {
      while (i < text.size() && text[i] != '\n' && text[i] != '"')
        ++i;
      i += i < text.size() && text[i] == '"';
    } else if (text[begin] == ' ') {
      while (i < text.size() && text[i] == ' ')
        ++i;
    }
    result.push_back(text.substr(begin, i - begin));
  }
  return result;
}

// `seen`: tokens to take replacements from.
inline std::string mutate(const std::string &text, const std::vector<std::string> &seen, std::minstd_rand &random) {
  std::vector<std::string> list = pieces(text);
  auto pick = [&](size_t count) { return static_cast<size_t>(random()) % count; };
  for (int rounds = 1 + pick(3); rounds > 0 && !list.empty(); --rounds) {
    size_t at = pick(list.size()), other = pick(list.size());
    switch (pick(12)) {
    case 0:
      list.erase(list.begin() + at);
      break;
    case 1:
      list.insert(list.begin() + at, list[at]);
      break;
    case 2:
      std::swap(list[at], list[other]);
      break;
    case 3:
      list[at] = list[other];
      break;
    case 4:
      list[at] = seen[pick(seen.size())];
      break;
    case 5: { // another number
      static const char *const numbers[] = {
          "0", "1", "2", "3", "0.5", "7", "1e30", "4294967296", "99999999999999999999", "1e-9"};
      for (size_t i = at; i < list.size(); ++i)
        if (std::isdigit(static_cast<unsigned char>(list[i][0]))) {
          list[i] = numbers[pick(10)];
          break;
        }
      break;
    }
    case 6: { // a line away
      size_t begin = at, end = at;
      while (begin > 0 && list[begin - 1] != "\n")
        --begin;
      while (end < list.size() && list[end] != "\n")
        ++end;
      list.erase(list.begin() + begin, list.begin() + end);
      break;
    }
    case 7: { // a few pieces from elsewhere
      size_t count = std::min(list.size() - other, 1 + pick(8));
      std::vector<std::string> copy(list.begin() + other, list.begin() + other + count);
      list.insert(list.begin() + at, copy.begin(), copy.end());
      break;
    }
    default: { // a word by another word of the file
      auto wordFrom = [&](size_t from) {
        while (from < list.size() && !isWordCharacter(list[from][0]))
          ++from;
        return from;
      };
      at = wordFrom(at);
      other = wordFrom(other);
      if (at < list.size() && other < list.size())
        list[at] = list[other];
    }
    }
  }
  std::string result;
  for (const std::string &piece : list)
    result += piece;
  return result;
}

#endif
