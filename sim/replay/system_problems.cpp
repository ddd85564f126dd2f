#include "sim/replay/system_problems.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "policies/decide/decide.hpp"
#include "sim/replay/system.hpp"

namespace kvreplay {
namespace {

/// The line without the system's own name: what two systems that lack the same have in common.
std::string without(std::string line, const std::string& name) {
  for (std::size_t at = line.find(name); at != std::string::npos; at = line.find(name, at)) {
    line.erase(at, name.size());
  }
  return line;
}

}  // namespace

std::vector<SystemProblem> system_problems(const TraceReader& trace, const ConfigFolder& configs) {
  std::vector<SystemProblem> problems;
  std::vector<std::string> kinds;  // by problem: the reason without a name
  for (const std::string& name : configs.names("systems")) {
    const SystemSpec system = SystemSpec::load(configs.file("systems", name, {}), configs);
    try {
      check_decidable(trace, {name, system.decide});
    } catch (const UserError& error) {
      const std::string kind = without(error.what(), name);
      const auto found = std::find(kinds.begin(), kinds.end(), kind);
      if (found == kinds.end()) {
        kinds.push_back(kind);
        problems.push_back({error.what(), {name}});
      } else {
        problems[static_cast<std::size_t>(found - kinds.begin())].systems.push_back(name);
      }
    }
  }
  return problems;
}

}  // namespace kvreplay
