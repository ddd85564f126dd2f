#include <filesystem>

#include "policies/decide/precision/support/controller.hpp"
#include "policies/decide/precision/support/token_widths.hpp"

namespace kvreplay {
namespace {

/// Stores each token at the width that the trained controller chooses.
class LearnedWidth final : public Precision {
 public:
  LearnedWidth(Controller controller, const Arguments& arguments, const Context& context)
      : features_(required_features(arguments, context)),
        controller_(std::move(controller)),
        widths_(controller_.group_channels, KeyForm(arguments, context), context) {}

  [[nodiscard]] std::vector<EntryFormat> formats() const override { return widths_.formats(); }

  void add_tokens(const Entries& exact, Token begin, Token end, EventSink& events) override {
    std::vector<int> classes;
    for (Token token = begin; token < end; ++token) {
      classes.push_back(controller_.choose(features_.rows[static_cast<std::size_t>(token)]));
    }
    widths_.add_tokens(exact, begin, classes, events);
  }

  [[nodiscard]] Entries decoded(const Entries& exact) override { return widths_.decoded(exact); }
  [[nodiscard]] std::int64_t held_bytes() const override { return widths_.held_bytes(); }

 private:
  const TokenFeatures& features_;
  Controller controller_;
  TokenWidths widths_;
};

/// A relative file name is resolved beside the config that holds it.
std::string beside_config(const std::string& file, const SourceLocation& place) {
  return (std::filesystem::path(place.file).parent_path() / file).string();
}

std::unique_ptr<Precision> make_learned(const Arguments& arguments,
                                        const Precision::Context& context) {
  Controller controller =
      Controller::load(beside_config(arguments.text("file"), arguments.place("file")));
  if (context.shape.head_dim % controller.group_channels != 0) {
    throw UserError(
        arguments.place("file"),
        "a controller for groups of " + std::to_string(controller.group_channels) + " channels",
        "one whose groups divide the head dimension " + std::to_string(context.shape.head_dim));
  }
  return std::make_unique<LearnedWidth>(std::move(controller), arguments, context);
}

const Registered<Precision> kController({
    .name = "controller",
    .help =
        "2, 4, 8 or 16 bits per token, chosen by a trained controller from the token's features",
    .source = "Don't Waste Bits, Eq. 14-28; labels, costs and the quantiser are not stated: ours",
    .parameters =
        with_key_form({text_parameter("file", std::nullopt,
                                      "the controller (JSON), relative to the config that "
                                      "names it")}),
    .make = make_learned,
});

}  // namespace
}  // namespace kvreplay
