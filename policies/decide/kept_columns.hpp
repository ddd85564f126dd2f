#pragma once

#include <algorithm>
#include <cstdint>

namespace kvreplay {

/// The unit of parameters that say how many of a vector's columns a part keeps, as a number or as a
/// share. They count those of the model that is replayed, also where the recording is of another.
inline constexpr const char* kOfModelColumns = "of the model's columns";

/// How many columns a part keeps of vectors of `recorded` elements that stand for vectors of
/// `model` elements, where `of_model` columns are kept: as many, since the number and not the share
/// says how well few columns stand for all; at most `most`, the columns that there are.
struct KeptColumns {
  std::int64_t used;
  /// What a cost at the recorded shape counts for each column used, so that its projection by width
  /// is the model's.
  double cost_per_column;
};

[[nodiscard]] inline KeptColumns kept_columns(std::int64_t of_model, std::int64_t model,
                                              std::int64_t recorded, std::int64_t most) {
  const std::int64_t used = std::clamp<std::int64_t>(of_model, 1, most);
  const double counted = static_cast<double>(std::max<std::int64_t>(of_model, 1)) *
                         static_cast<double>(recorded) / static_cast<double>(model);
  return {used, counted / static_cast<double>(used)};
}

}  // namespace kvreplay
