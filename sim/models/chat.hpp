#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/models/model_file.hpp"
#include "sim/models/next_token.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

/// A conversation to be recorded, in the model's chat form.
struct Chat {
  struct Part {
    std::string role;        ///< of kSegmentRoles
    bool generated = false;  ///< an answer: decode steps
    /// None where the model is to write the answer.
    std::vector<std::int32_t> ids;
  };
  std::vector<Part> parts;          ///< the last is an answer
  std::vector<std::int32_t> close;  ///< what ends a turn; the model ends an answer with the first

  /// Whether the model writes any answer.
  [[nodiscard]] bool draws() const;
};

/// The tokens of a conversation with all its answers, and where its segments begin.
struct ChatText {
  std::vector<std::int32_t> ids;
  std::vector<Segment> segments;
};

/// Lets the model write the answers that have no ids: up to `most_tokens` each, or to the token
/// that ends a turn, which is the answer's last. After an answer that another turn follows comes
/// what is missing of `close`, prefilled with that turn. Throws UserError where the conversation
/// may be longer than the model's context.
[[nodiscard]] ChatText write_chat(const Model& model, const Chat& chat, std::int64_t most_tokens,
                                  const SamplingOptions& sampling, int threads,
                                  std::int64_t chunk_tokens);

}  // namespace kvreplay
