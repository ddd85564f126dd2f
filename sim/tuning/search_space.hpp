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

/// The parts and arguments of a system, as SystemSpec::resolved() writes them.
using Composition = std::string;

/// The system as a composition. Files that it names become absolute paths, so that it means the
/// same wherever it stands.
[[nodiscard]] Composition composition_of(const SystemSpec& system);

/// The composition as a system. UserError where its parts do not fit each other.
[[nodiscard]] SystemSpec system_of(const Composition& composition, const std::string& name);

/// A system's file, of the given title and source, with the composition's parts.
[[nodiscard]] std::string system_file(const Composition& composition, const std::string& title,
                                      const std::string& source);

struct SpaceOptions {
  bool any_part = false;         ///< parts may be exchanged, too, not only their arguments
  std::set<std::string> held{};  ///< "precision" or "stream.sink_tokens": as in the first parent
  std::set<std::string> excluded{};  ///< "grouping/global": parts that no composition has
};

/// Which compositions there are: every part in the catalogue with every argument that its
/// declaration allows. What fits together is what the program accepts.
class SearchSpace {
 public:
  /// The trace outlives this object: it says which sizes of groups, budgets and caches make sense,
  /// and whether parts find in it what they need.
  SearchSpace(const TraceReader& trace, SpaceOptions options);

  /// The composition in its canonical form. UserError, where a check of the program refuses it: its
  /// parts do not fit, it needs what the trace has not, a part is excluded, or it is an oracle,
  /// which no machine can run.
  [[nodiscard]] Composition checked(const Composition& composition) const;
  /// The same; nothing where checked() refuses.
  [[nodiscard]] std::optional<Composition> accept(const Composition& composition) const;

  /// A neighbour, which accept() may refuse: `changes` arguments or parts are others.
  [[nodiscard]] Composition mutate(const Composition& composition, int changes,
                                   Random& random) const;
  /// Each part of one parent or of the other, which accept() may refuse; arguments of a part that
  /// both have come from either.
  [[nodiscard]] Composition cross(const Composition& first, const Composition& second,
                                  Random& random) const;

 private:
  [[nodiscard]] bool is_held(const std::string& role, const std::string& parameter) const;
  void exchange_part(nlohmann::json& object, Random& random) const;
  void change_argument(nlohmann::json& object, Random& random) const;
  /// Another value than `now`, near it or, at times, anywhere.
  [[nodiscard]] Value drawn(const Parameter& parameter, const Value& now, Random& random) const;

  const TraceReader& trace_;
  SpaceOptions options_;
  std::int64_t layer_bytes_ = 0;  ///< fp16 entries of the recording, one layer
};

}  // namespace kvreplay
