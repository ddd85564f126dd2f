#include "sim/models/chat.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "sim/models/full_attention.hpp"
#include "sim/models/transformer.hpp"

namespace kvreplay {
namespace {

bool is_drawn(const Chat::Part& part) {
  return part.generated && part.ids.empty();
}

/// The model, which reads a conversation as it grows.
class ChatModel {
 public:
  ChatModel(const Model& model, std::int64_t max_tokens, int threads, std::int64_t chunk_tokens)
      : pool_(threads),
        transformer_(model, max_tokens, pool_),
        attention_(model.architecture(), max_tokens, pool_),
        vocabulary_(static_cast<std::size_t>(model.architecture().vocabulary)),
        hidden_size_(static_cast<std::size_t>(model.architecture().hidden_size)),
        chunk_tokens_(chunk_tokens) {}

  /// Logits after the last of `ids`, whose first ones it has read before.
  std::span<const float> read(const std::vector<std::int32_t>& ids) {
    std::span<const float> hidden;
    while (read_ < std::ssize(ids)) {
      const std::int64_t count = std::min(chunk_tokens_, std::ssize(ids) - read_);
      std::vector<std::int64_t> positions(static_cast<std::size_t>(count));
      std::iota(positions.begin(), positions.end(), read_);
      hidden = transformer_.run(
          std::span(ids).subspan(static_cast<std::size_t>(read_), static_cast<std::size_t>(count)),
          positions, attention_);
      read_ += count;
    }
    return transformer_.logits(hidden.last(hidden_size_)).first(vocabulary_);
  }

 private:
  WorkerPool pool_;
  Transformer transformer_;
  FullAttention attention_;
  std::size_t vocabulary_;
  std::size_t hidden_size_;
  std::int64_t chunk_tokens_;
  std::int64_t read_ = 0;
};

}  // namespace

bool Chat::draws() const {
  return std::any_of(parts.begin(), parts.end(), is_drawn);
}

ChatText write_chat(const Model& model, const Chat& chat, std::int64_t most_tokens,
                    const SamplingOptions& sampling, int threads, std::int64_t chunk_tokens) {
  std::int64_t most = 0;
  for (const Chat::Part& part : chat.parts) {
    most += is_drawn(part) ? most_tokens : std::ssize(part.ids);
    if (part.generated) most += std::ssize(chat.close);
  }
  if (const std::int64_t context = model.architecture().context_tokens; most > context) {
    throw UserError({"--chat, --steps", ""}, "up to " + std::to_string(most) + " tokens",
                    std::to_string(context) + " or fewer, the context of " + model.name());
  }
  for (const Chat::Part& part : chat.parts) {
    for (const std::int32_t id : part.ids) {
      if (id >= 0 && id < model.architecture().vocabulary) continue;
      throw UserError({"--chat", ""}, "token id " + std::to_string(id),
                      "ids of the vocabulary of " + model.name());
    }
  }
  std::optional<ChatModel> reader;
  if (chat.draws()) reader.emplace(model, most, threads, chunk_tokens);
  Sampler sampler(sampling);
  ChatText text;
  for (std::size_t i = 0; i < chat.parts.size(); ++i) {
    const Chat::Part& part = chat.parts[i];
    text.segments.push_back({part.role, std::ssize(text.ids), part.generated});
    if (i > 0 && chat.parts[i - 1].generated) {
      // The answer may have ended with the first of these tokens.
      const bool ended = text.ids.back() == chat.close.front();
      text.ids.insert(text.ids.end(), chat.close.begin() + (ended ? 1 : 0), chat.close.end());
    }
    if (!is_drawn(part)) {
      text.ids.insert(text.ids.end(), part.ids.begin(), part.ids.end());
      continue;
    }
    for (std::int64_t step = 0; step < most_tokens; ++step) {
      text.ids.push_back(sampler.draw(reader->read(text.ids)));
      if (text.ids.back() == chat.close.front()) break;
    }
  }
  return text;
}

}  // namespace kvreplay
