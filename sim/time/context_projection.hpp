#pragma once

#include <cstdint>

#include "policies/place/place.hpp"

namespace kvreplay {

/// The plan of a recording, projected to a sequence of `context_tokens` (prompt and steps), whose
/// prompt is longer and whose steps are as many:
///
///   - entries at rest grow with the sequence, and representatives and their scoring with the
///     tokens in groups; what is in memory outside groups, codebooks, and the newest entries in a
///     form of their own (EntryFormat::newest) are as many as before;
///   - a layer that attends to all tokens so far at a step does so in the longer context, too, up
///     to its budget (AttendedBound::tokens): its attended tokens, what it reads, and what its
///     cache holds grow likewise;
///   - where what a step attends to is a share of the length, or of the prompt's, that share is
///     kept: as many times the tokens, requests and reads, as scattered and hit as often, and what
///     the cache holds;
///   - a step that reads all groups to group everything anew reads all of the longer sequence;
///   - any other layer that selects does so as in the recording: as many tokens, as scattered, hit
///     as often;
///   - a cache holds no more than its capacity, and one that held every group fills it;
///   - behind a sliding window of w tokens, what is visible grows no further than w.
///
/// Throws UserError when `context_tokens` is below the recording's length; a trace can be cut.
[[nodiscard]] IoPlan project_context(const IoPlan& plan, std::int64_t context_tokens);

}  // namespace kvreplay
