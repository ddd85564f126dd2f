#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

#include "base/error.hpp"

namespace kvreplay {

/// The text of the UserError that `work` throws. Fails the test when it throws none.
template <typename Work>
[[nodiscard]] std::string user_error_of(const Work& work) {
  try {
    work();
  } catch (const UserError& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return {};
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace kvreplay
