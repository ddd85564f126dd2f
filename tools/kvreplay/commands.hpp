#pragma once

namespace CLI {
class App;
}

/// Each function adds one subcommand: its options and what it does. Results go to standard output,
/// messages to standard error. A user's mistake is a UserError.
namespace kvreplay {

void add_run(CLI::App& program);
void add_sweep(CLI::App& program);
void add_merge(CLI::App& program);
void add_table(CLI::App& program);
void add_tune(CLI::App& program);
void add_recommend(CLI::App& program);
void add_restore(CLI::App& program);
void add_cache(CLI::App& program);
void add_list(CLI::App& program);
void add_explain(CLI::App& program);
void add_inspect(CLI::App& program);
void add_fetch_model(CLI::App& program);
void add_record(CLI::App& program);
void add_evaluate(CLI::App& program);
void add_live(CLI::App& program);
void add_platform(CLI::App& program);
void add_model(CLI::App& program);
void add_validate(CLI::App& program);
void add_verify(CLI::App& program);
void add_cut(CLI::App& program);
void add_convert(CLI::App& program);
/// Sets `exit_code` to 1 where the traces differ.
void add_diff(CLI::App& program, int& exit_code);
void add_synth(CLI::App& program);
void add_adapt(CLI::App& program);
void add_train_controller(CLI::App& program);
void add_statistics(CLI::App& program);
void add_export_accesses(CLI::App& program);
void add_reproduce(CLI::App& program);
void add_compare(CLI::App& program);
void add_plot(CLI::App& program);
void add_report(CLI::App& program);
void add_device(CLI::App& program);

}  // namespace kvreplay
