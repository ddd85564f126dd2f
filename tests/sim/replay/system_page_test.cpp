#include "sim/replay/system_page.hpp"

#include <gmock/gmock.h>

#include "base/build_info.hpp"
#include "base/files.hpp"

namespace kvreplay {
namespace {

const std::string kDocs = source_folder() + "/docs/systems/";

TEST(SystemPage, IsTheOneThatShips) {
  const ConfigFolder configs = ConfigFolder::standard();
  for (const std::string name : {"quest", "kvswap", "dynakv"}) {
    EXPECT_EQ(system_page(SystemSpec::load(configs.file("systems", name, {}))),
              read_text_file(kDocs + name + ".md", "a page"));
  }
  EXPECT_EQ(system_index(configs), read_text_file(kDocs + "README.md", "a page"));
}

}  // namespace
}  // namespace kvreplay
