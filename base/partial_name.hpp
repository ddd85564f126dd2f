#pragma once

#include <string>
#include <vector>

namespace kvreplay {

/// The name under which `path` is written until it is whole: PATH.partial-HOST-PID, with a digest
/// of the host's name.
[[nodiscard]] std::string partial_name(const std::string& path);

/// What writers of `path` on this host have beside it: names of partial_name(), with any ending.
[[nodiscard]] std::vector<std::string> partial_names(const std::string& path);

/// Removes what writers of `path` on this host left beside it when they were killed: names of
/// partial_name(), with any ending, of processes that are gone.
void remove_abandoned(const std::string& path);

}  // namespace kvreplay
