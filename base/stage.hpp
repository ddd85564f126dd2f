#pragma once

#include <concepts>
#include <cstddef>
#include <optional>

namespace kvreplay {

/// The stages of a replay, each a function of the previous one: decide makes the access log, place
/// the I/O plan, time the results. Beside kRole, the interface of every role declares the stage in
/// which its parts work:
///   static constexpr Stage kStage = Stage::kDecide;
/// A role that no stage uses (a way to do real I/O) has no kStage.
enum class Stage { kDecide, kPlace, kTime };

inline constexpr std::size_t kStageCount = 3;

/// For arrays with one element per stage.
[[nodiscard]] constexpr std::size_t index_of(Stage stage) {
  return static_cast<std::size_t>(stage);
}

template <typename Role>
concept HasStage = requires {
  { Role::kStage } -> std::same_as<const Stage&>;
};

/// The stage that parts of a role work in, if any.
template <typename Role>
[[nodiscard]] constexpr std::optional<Stage> stage_of() {
  if constexpr (HasStage<Role>) {
    return Role::kStage;
  } else {
    return std::nullopt;
  }
}

}  // namespace kvreplay
