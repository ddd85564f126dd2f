#pragma once

#include <string>

#include "base/error.hpp"
#include "policies/decide/log/access_log.hpp"

namespace kvreplay {

/// How many tokens of groups a row may select: `tokens`, or `share` of those so far. None where
/// both are 0.
struct SelectionBound {
  std::int64_t tokens = 0;
  double share = 0;
};

/// Throws UserError unless everything that a reader of `stream` indexes by is within what `log`,
/// with its shape, prompt, steps and formats, has: groups, tokens, formats, heads, counts. `place`:
/// the stream's; the array's name is added to it. The sizes of the arrays have been checked.
void check_stream_values(const StreamLog& stream, const AccessLog& log, const SourceLocation& place,
                         const SelectionBound& bound = {});

/// The same of the attributes of the log itself.
void check_log_shape(const AccessLog& log, const SourceLocation& place);

}  // namespace kvreplay
