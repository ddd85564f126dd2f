#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/hdf5/hdf5_file.hpp"
#include "base/interrupt_cleanup.hpp"
#include "base/mapped_file.hpp"
#include "base/registry.hpp"
#include "policies/kernels/kernels.hpp"
#include "tools/kvreplay/commands.hpp"

namespace kvreplay {
namespace {

constexpr int kUserMistake = 2;
constexpr int kOurMistake = 1;

int fail(const std::string& message, int code) {
  std::cerr << "kvreplay: " << message << '\n';
  return code;
}

/// CLI11 reports what is wrong. This adds the valid names where a name was wrong or missing.
UserError command_line_error(const CLI::App& program, const CLI::ParseError& error) {
  const CLI::App* deepest = &program;
  std::string path;
  while (!deepest->get_subcommands().empty()) {
    deepest = deepest->get_subcommands().front();
    path += (path.empty() ? "" : " ") + deepest->get_name();
  }
  const CLI::App& command = *deepest;
  const SourceLocation place{path, ""};

  std::vector<std::string> names;
  for (const CLI::App* subcommand : command.get_subcommands({})) {
    names.push_back(subcommand->get_name());
  }
  const std::vector<std::string> unexpected = command.remaining();
  if (unexpected.empty()) return UserError(place, error.what(), join(names));
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return unknown_name(place, path.empty() ? "command" : "argument", unexpected.front(), names);
}

/// CLI11 drops empty values, so "--size 4K," would pass as "--size 4K".
void check_lists(const CLI::App& program, int argc, char** argv) {
  const CLI::App* command = &program;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (!word.starts_with("--")) {
      for (const CLI::App* subcommand : command->get_subcommands({})) {
        if (subcommand->get_name() == word) command = subcommand;
      }
      continue;
    }
    const std::size_t equal = std::min(word.find('='), word.size());
    const std::string name(word.substr(0, equal));
    const CLI::Option* option = command->get_option_no_throw(name);
    if (option == nullptr || option->get_delimiter() != ',') continue;
    const char* next = i + 1 < argc ? argv[i + 1] : "";
    const std::string values(equal < word.size() ? word.substr(equal + 1) : next);
    if (!values.empty() &&
        (values.front() == ',' || values.back() == ',' || values.find(",,") != values.npos)) {
      throw UserError({name, ""}, "found an empty value in '" + values + "'", "A,B,C");
    }
  }
}

void use_isa_named(const std::string& wanted) {
  std::vector<std::string> names;
  for (const kernels::Isa isa : kernels::available_isas()) {
    names.emplace_back(kernels::isa_name(isa));
    if (names.back() == wanted) return kernels::use_isa(isa);
  }
  throw UserError({"--isa", ""}, "found " + wanted, join(names) + ": what this machine has");
}

int run_command(int argc, char** argv) {
  CLI::App program(
      "Replays a recorded LLM's keys, values and queries through KV-cache policies and "
      "times them on modelled flash devices.");
  program.name("kvreplay");
  program.set_version_flag("--version", "kvreplay " + version());
  program
      .add_option_function<std::string>(
          "--isa", use_isa_named,
          "Instruction set of the kernels: scalar, avx2 or avx512; by default the machine's best. "
          "Results do not depend on it")
      ->type_name("NAME");
  program.require_subcommand(1);
  program.footer(
      "Start with:  kvreplay run configs/experiments/first.json\n"
      "             kvreplay list systems\n"
      "             kvreplay explain kvswap\n"
      "             kvreplay COMMAND --help");
  add_run(program);
  add_sweep(program);
  add_merge(program);
  add_table(program);
  add_tune(program);
  add_recommend(program);
  add_restore(program);
  add_cache(program);
  add_list(program);
  add_explain(program);
  add_inspect(program);
  add_verify(program);
  add_fetch_model(program);
  add_record(program);
  add_evaluate(program);
  add_live(program);
  add_platform(program);
  add_model(program);
  add_validate(program);
  add_cut(program);
  add_convert(program);
  int exit_code = 0;
  add_diff(program, exit_code);
  add_synth(program);
  add_adapt(program);
  add_train_controller(program);
  add_statistics(program);
  add_export_accesses(program);
  add_reproduce(program);
  add_compare(program);
  add_plot(program);
  add_report(program);
  add_device(program);

  check_lists(program, argc, argv);
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    program.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    throw command_line_error(program, error);
  }
  std::cout.flush();
  if (!std::cout) throw UserError({"standard output", ""}, "cannot be written", "");
  return exit_code;
}

int exit_code_of(int argc, char** argv) {
  if (!twice_registered_parts().empty()) return fail(twice_registered_parts().front(), kOurMistake);
  try {
    return run_command(argc, argv);
  } catch (const UserError& error) {
    return fail(error.what(), kUserMistake);
  } catch (const std::system_error& error) {
    const bool is_thread = error.code() == std::errc::resource_unavailable_try_again;
    return fail(is_thread ? "no thread can be started: too little memory, or too many processes"
                          : std::string("internal error: ") + error.what(),
                kOurMistake);
  } catch (const std::exception& error) {
    return fail(std::string("internal error: ") + error.what(), kOurMistake);
  }
}

bool main_has_ended = false;

/// Where memory runs out, nothing is left to unwind with: a JSON value's destructor allocates, and
/// one that got no memory for its members follows a null pointer; HDF5 calls exit(). Each takes a
/// line, exit code 1 and no temporary file. Buffers for I/O do not come from operator new: who asks
/// for too large ones is told so.
struct EndsWhereMemoryRunsOut {
  EndsWhereMemoryRunsOut() {
    std::set_new_handler(
        [] { end_program("kvreplay: not enough memory for what was asked for\n", kOurMistake); });
  }
};

/// Made before all other objects: parts register themselves before main(), and allocate for it.
[[gnu::init_priority(101)]] const EndsWhereMemoryRunsOut kEndsWhereMemoryRunsOut;

/// Of the destructions at exit this must come first, so it follows the registrations.
void end_with_a_line() {
  std::set_terminate([] {
    end_program("kvreplay: internal error: an exception could not be handled (out of memory?)\n",
                kOurMistake);
  });
  std::atexit([] {
    if (main_has_ended) return;
    end_program("kvreplay: internal error: a library ended the program (out of memory?)\n",
                kOurMistake);
  });
}

}  // namespace
}  // namespace kvreplay

int main(int argc, char** argv) {
  // Exceeding a file-size limit is then an error of the write with a one-line message, like a full
  // disk.
  std::signal(SIGXFSZ, SIG_IGN);
  for (const int signal : kvreplay::kEndingSignals) kvreplay::clean_up_at(signal);
  kvreplay::end_at_failed_mapping(kvreplay::kUserMistake);
  kvreplay::end_at_crash_in_hdf5(kvreplay::kUserMistake);
  kvreplay::end_with_a_line();
  const int code = kvreplay::exit_code_of(argc, argv);
  kvreplay::main_has_ended = true;
  return code;
}
