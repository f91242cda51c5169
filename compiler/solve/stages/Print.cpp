// Print.cpp: a table as text.
#include "compiler/solve/stages/Simulate.h"

#include <algorithm>
#include <cmath>

namespace cinch::solve {

std::string print(const ScheduleTable &t, int width) {
  TableCosts unit;
  unit.stages.assign(t.stages(), {});
  for (StageCost &c : unit.stages)
    c.forward = c.input = c.weight = c.update = 1;
  unit.transfers = chainTransfers(t.stages());
  for (int s = 0; s < t.stages(); ++s)
    unit.stages[s].update = 1.0 / t.request.chunks; // one for the worker
  Simulation s = simulate(t, unit);
  int columns = int(std::lround(s.makespan)), workers = int(t.rows.size());
  std::vector<std::vector<std::string>> cells(workers, std::vector<std::string>(columns));
  size_t cell = 1;
  for (int w = 0; w < workers; ++w)
    for (size_t i = 0; i < t.rows[w].size(); ++i) {
      const Action &a = t.rows[w][i];
      std::string word = t.request.steps == 1 && a.kind == Action::Update ? "U" : text(a);
      cell = std::max(cell, word.size());
      for (int c = int(std::lround(s.spans[w][i].begin)); c < int(std::lround(s.spans[w][i].end)); ++c)
        cells[w][c] = word;
    }
  std::string label = "worker ", out;
  size_t margin = label.size() + std::to_string(workers - 1).size() + 2;
  int fit = std::max(1, int((std::max<size_t>(width, margin + cell + 1) - margin) / (cell + 1)));
  for (int first = 0; first < columns; first += fit) {
    if (first)
      out += "\n";
    for (int w = 0; w < workers; ++w) {
      std::string line = label + std::to_string(w);
      line.resize(margin, ' ');
      for (int c = first; c < std::min(first + fit, columns); ++c) {
        std::string word = cells[w][c].empty() ? "." : cells[w][c];
        word.resize(cell + 1, ' ');
        line += word;
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
  }
  return out;
}

} // namespace cinch::solve
