// Addresses of devices, and the command lines that programs get for them.

#include "devices/remote/transport.hpp"

#include <gmock/gmock.h>

#include <cstdio>

#include "base/shell.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

TEST(DeviceAddress, PathsOfThisMachineAreNone) {
  for (const char* path : {"/data/test.bin", "test.bin", "./ssh:x", "sshfile", ""}) {
    EXPECT_FALSE(is_device_address(path)) << path;
  }
}

TEST(DeviceAddress, NamesPlaceAndPath) {
  struct Case {
    std::string text, name, path;
  };
  for (const auto& [text, name, path] :
       {Case{"ssh:board:/dev/nvme0n1", "ssh:board", "/dev/nvme0n1"},
        {"ssh:me@board.lan:2222:/a b'c", "ssh:me@board.lan", "/a b'c"},
        {"ssh:me@[fe80::1%eth0]:22:/x", "ssh:me@fe80::1%eth0", "/x"},
        {"adb:R5CT:/data/local/tmp/x:/y", "adb:R5CT", "/data/local/tmp/x:/y"},
        {"adb:10.0.0.2:5555:/x", "adb:10.0.0.2:5555", "/x"},
        {"adb:[fe80::1%wlan0]:5555:/x", "adb:[fe80::1%wlan0]:5555", "/x"},
        {"local:/x", "local:", "/x"},
        {"local:qemu-aarch64-static:/x", "local:qemu-aarch64-static", "/x"}}) {
    const DeviceAddress address = parse_device_address(text, {});
    EXPECT_EQ(address.transport->name(), name);
    EXPECT_EQ(address.path, path);
  }
}

TEST(DeviceAddress, WhatCouldBeTakenForSomethingElseIsRefused) {
  for (const char* text : {"ssh:",
                           "ssh:board",
                           "ssh:board:relative",
                           "ssh:/path",
                           "ssh::/path",
                           "ssh:board/path",
                           "ssh:-oProxyCommand=x:/path",
                           "ssh:me@-x:/path",
                           "ssh:-me@board:/path",
                           "ssh:@board:/path",
                           "ssh:a b:/path",
                           "ssh:a;b:/path",
                           "ssh:$(x):/path",
                           "ssh:a`b:/path",
                           "ssh:board:0:/path",
                           "ssh:board:65536:/path",
                           "ssh:board:22x:/path",
                           "ssh:board::/path",
                           "ssh:board:/a\nb",
                           "ssh:[::1:/path",
                           "adb:/path",
                           "adb:-s:/path",
                           "adb:x y:/path",
                           "local:a;b:/path",
                           "local:../x:/path",
                           "local:-x:/path"}) {
    EXPECT_NE(user_error_of([&] { (void)parse_device_address(text, {}); }), "") << text;
  }
  EXPECT_NE(
      user_error_of([] { (void)parse_device_address("ssh:b:/" + std::string(5000, 'x'), {}); }),
      "");
  for (const char* option : {"", "Port", "-oPort=1", "Port=1\nProxyCommand=x", "=1"}) {
    EXPECT_THAT(user_error_of([&] { (void)parse_device_address("ssh:board:/x", {option}); }),
                HasSubstr("--ssh-option"))
        << option;
  }
  EXPECT_THAT(user_error_of([] { (void)parse_device_address("adb:R5CT:/x", {"Port=1"}); }),
              HasSubstr("--ssh-option"));
}

TEST(Transport, TheLineIsOneWord) {
  const std::string line = "rm -f -- '/tmp/a b'";
  const auto ssh =
      parse_device_address("ssh:me@board:2222:/x", {"User=you"}).transport->shell(line);
  EXPECT_EQ(ssh.front(), "ssh");
  EXPECT_EQ(std::vector<std::string>(ssh.end() - 3, ssh.end()),
            (std::vector<std::string>{"--", "me@board", line}));
  EXPECT_THAT(ssh, IsSupersetOf({std::string("-p"), std::string("2222"), std::string("User=you"),
                                 std::string("BatchMode=yes")}));
  EXPECT_THAT(parse_device_address("adb:R5CT:/x", {}).transport->shell(line),
              ElementsAre("adb", "-s", "R5CT", "shell", "-T", line));
}

TEST(Transport, AShellReadsAQuotedTextAsItIs) {
  for (const std::string text :
       {"plain", "a b", "it's", "$(reboot)", "`x`", "a\\b\"c", "*", "", "'"}) {
    const std::string command = "printf %s " + shell_quoted(text);
    FILE* pipe = ::popen(command.c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string said(100, '\0');
    said.resize(std::fread(said.data(), 1, said.size(), pipe));
    EXPECT_EQ(::pclose(pipe), 0);
    EXPECT_EQ(said, text);
  }
}

}  // namespace
}  // namespace kvreplay
