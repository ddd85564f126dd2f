#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/registry.hpp"
#include "policies/decide/log/groups.hpp"
#include "policies/decide/log/prompt_work.hpp"

namespace kvreplay {

/// Role: which tokens travel together. A grouping decides the events of its stream. It sees tokens
/// in order, after the sinks and as they leave the recent window. `groups` applies each event as it
/// is emitted. Tokens of a group, or waiting in memory, may have been evicted between the calls.
class Grouping {
 public:
  static constexpr std::string_view kRole = "grouping";
  static constexpr Stage kStage = Stage::kDecide;
  struct Context {
    StreamShape shape;
    std::uint64_t seed = 0;  ///< for this stream only
  };

  virtual ~Grouping() = default;

  /// Tokens [begin, end) of the prompt. Emits the events that place every one of them.
  virtual void add_prompt(const Entries& entries, Token begin, Token end, const Groups& groups,
                          EventSink& events) = 0;
  /// What add_prompt() did, at the stream's own shape.
  [[nodiscard]] virtual PromptWork prompt_work() const { return {}; }

  /// Takes one more token, at the beginning of the decode step's update. `selected` are the groups
  /// that the step read, which are therefore in memory: ascending and without repetition. Emits the
  /// events that place the token.
  virtual void add_token(const Entries& entries, Token token, std::span<const GroupId> selected,
                         const Groups& groups, EventSink& events) = 0;
};

}  // namespace kvreplay
