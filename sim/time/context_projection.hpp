#pragma once

#include <cstdint>

#include "policies/place/place.hpp"

namespace kvreplay {

/// The plan of a recording, projected to a sequence of `context_tokens` (prompt and steps), with f
/// = context_tokens / (prompt_tokens + steps) of the recording:
///
///   - what is kept for every token grows by f: entries at rest, representatives, their scoring;
///   - a layer that attends to all tokens so far at a step does so in the longer context, too: its
///     attended tokens, what it reads, and what its cache holds grow likewise;
///   - a layer that selects does so as in the recording: as many tokens, as scattered, with the
///   same
///     hits.
///
/// Throws UserError when `context_tokens` is below the recording's length; a trace can be cut.
[[nodiscard]] IoPlan project_context(const IoPlan& plan, std::int64_t context_tokens);

}  // namespace kvreplay
