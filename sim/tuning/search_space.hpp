#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>

#include "base/random.hpp"
#include "sim/replay/system.hpp"

namespace kvreplay {

class TraceReader;

/// The parts and arguments of a system, in the form of SystemSpec::resolved().
using Composition = std::string;

/// The system as a composition. Files that it names become absolute paths, so that it means the
/// same everywhere.
[[nodiscard]] Composition composition_of(const SystemSpec& system);

/// The composition as a system. Throws UserError where its parts do not fit each other.
[[nodiscard]] SystemSpec system_of(const Composition& composition, const std::string& name);

/// A system's file with the given title and source and the composition's parts.
[[nodiscard]] std::string system_file(const Composition& composition, const std::string& title,
                                      const std::string& source);

struct SpaceOptions {
  bool any_part = false;         ///< parts may be exchanged, not only their arguments
  std::set<std::string> held{};  ///< "precision" or "stream.sink_tokens": as in the first parent
  std::set<std::string> excluded{};  ///< "grouping/global": parts that no composition has
};

/// The compositions to search: every part in the catalogue with every argument that its declaration
/// allows. The program's own checks decide which of them are valid.
class SearchSpace {
 public:
  /// The trace must outlive this object. It determines which sizes of groups, budgets and caches
  /// make sense, and whether parts find in it what they need.
  SearchSpace(const TraceReader& trace, SpaceOptions options);

  /// The composition in its canonical form. Throws UserError where a check of the program refuses
  /// it: its parts do not fit, the trace lacks what it needs, a part is excluded, or it is an
  /// oracle, which no machine can run.
  [[nodiscard]] Composition checked(const Composition& composition) const;
  /// The same, with none where checked() refuses.
  [[nodiscard]] std::optional<Composition> accept(const Composition& composition) const;

  /// A neighbour with `changes` changed arguments or parts, which accept() may refuse.
  [[nodiscard]] Composition mutate(const Composition& composition, int changes,
                                   Random& random) const;
  /// Each part comes from one parent or the other; arguments of a part that both have come from
  /// either. accept() may refuse the result.
  [[nodiscard]] Composition cross(const Composition& first, const Composition& second,
                                  Random& random) const;

 private:
  [[nodiscard]] bool is_held(const std::string& role, const std::string& parameter) const;
  void exchange_part(nlohmann::json& object, Random& random) const;
  void change_argument(nlohmann::json& object, Random& random) const;
  /// A value other than `now`, near it or sometimes anywhere.
  [[nodiscard]] Value drawn(const Parameter& parameter, const Value& now, Random& random) const;

  const TraceReader& trace_;
  SpaceOptions options_;
  std::int64_t layer_bytes_ = 0;  ///< fp16 entries of the recording, one layer
};

}  // namespace kvreplay
