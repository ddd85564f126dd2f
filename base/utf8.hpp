#pragma once

#include <string_view>

#include "base/error.hpp"

namespace kvreplay {

/// Throws UserError, naming `place`, unless the text is UTF-8, as all that JSON holds is.
void check_utf8(std::string_view text, const SourceLocation& place);

}  // namespace kvreplay
