#pragma once

#include <string>
#include <vector>

#include "traces/trace.hpp"

namespace kvreplay {

/// A difference of two traces in an attribute, in the presence of a layer, or in the presence or
/// shape of a data set.
struct TextDifference {
  std::string path;  ///< "/ model", "/layer/12", "/layer/12/query"
  std::string first;
  std::string second;
};

/// A data set that both traces hold in the same shape.
struct ValueDifference {
  std::string path;
  double max = 0;       ///< max |a - b|
  double relative = 0;  ///< |a - b|_2 / |a|_2; infinite where a is all 0 and b is not
};

struct TraceDifference {
  std::vector<TextDifference> texts;
  std::vector<ValueDifference> values;  ///< every data set compared, including the equal ones
  /// Paths that could not be compared: only one trace holds it, or the shapes differ.
  std::vector<std::string> not_compared;

  [[nodiscard]] bool same() const;
};

/// Compares the contents of two traces as numbers: how vectors are stored (dtype, chunks) shows
/// only in the attributes. Where layers differ, the common ones are compared.
[[nodiscard]] TraceDifference diff_traces(const TraceReader& first, const TraceReader& second);

/// One line per difference; the last line counts the data sets that are equal, and says which were
/// not compared.
[[nodiscard]] std::string to_text(const TraceDifference& difference);

}  // namespace kvreplay
