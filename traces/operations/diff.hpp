#pragma once

#include <string>
#include <vector>

#include "traces/trace.hpp"

namespace kvreplay {

/// An attribute, or the presence of a layer, or a data set's presence or shape, that two traces do
/// not share.
struct TextDifference {
  std::string path;  ///< "/ model", "/layer/12", "/layer/12/query"
  std::string first;
  std::string second;
};

/// A data set that both hold in the same shape.
struct ValueDifference {
  std::string path;
  double largest = 0;   ///< max |a - b|
  double relative = 0;  ///< |a - b|_2 / |a|_2; infinite where a is all 0 and b is not
};

struct TraceDifference {
  std::vector<TextDifference> texts;
  std::vector<ValueDifference> values;  ///< every data set compared, the equal ones too
  /// Paths of what could not be: one trace alone holds it, or they hold it in different shapes.
  std::vector<std::string> not_compared;

  [[nodiscard]] bool same() const;
};

/// Compares what two traces say and hold, as numbers: how vectors are stored (dtype, chunks) shows
/// in the attributes alone. Where layers differ, the common ones are compared.
[[nodiscard]] TraceDifference diff_traces(const TraceReader& first, const TraceReader& second);

/// One line a difference; the last counts the data sets that are equal, and says which were not
/// compared.
[[nodiscard]] std::string to_text(const TraceDifference& difference);

}  // namespace kvreplay
