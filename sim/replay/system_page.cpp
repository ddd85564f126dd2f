#include "sim/replay/system_page.hpp"

#include <string_view>

#include "base/registry.hpp"
#include "base/table.hpp"

namespace kvreplay {
namespace {

constexpr std::string_view kFooter = "\n`tools/update-docs` writes this page from the configs.\n";

std::string code(const std::string& text) {
  return text.empty() ? "" : "`" + text + "`";
}

std::string parameter_table(const SystemSpec::Member& member) {
  if (member.parameters.empty()) return "";
  Table table(
      {{"parameter"}, {"value"}, {"unit"}, {"default"}, {"allowed"}, {"meaning"}, {"source"}});
  for (const Parameter& parameter : member.parameters) {
    const Argument& argument = member.arguments->all().find(parameter.name)->second;
    const std::string usual =
        parameter.default_value ? code(to_text(*parameter.default_value)) : "required";
    table.add_row({code(parameter.name), code(to_text(argument.value)), parameter.unit, usual,
                   allowed_text(parameter), parameter.help, argument.source});
  }
  return '\n' + table.markdown();
}

std::string member_section(const SystemSpec::Member& member) {
  std::string text = "\n### " + member.role;
  if (member.part.empty()) return text + "\n" + parameter_table(member);
  const PartInfo& part = part_catalogue().at({member.role, member.part});
  text += ": " + code(member.part) + "\n\n" + part.help + ". Source: " + part.source + ".\n";
  return text + parameter_table(member);
}

}  // namespace

std::string system_page(const SystemSpec& system) {
  std::string text = "# " + system.name + "\n\n" + system.title + ".\n\nSource: " + system.source +
                     ".\n\n## What differs from the source\n\n";
  if (system.differs.empty()) text += "Nothing that is known.\n";
  for (const std::string& difference : system.differs) text += "- " + difference + "\n";
  text +=
      "\n## Parts and parameters\n\nThe source is that of the value; where there is none, the "
      "value "
      "is the default or follows from the system's definition.\n";
  for (const SystemSpec::Member& member : system.members()) text += member_section(member);
  return text.append(kFooter);
}

std::string system_index(const ConfigFolder& configs) {
  std::string text =
      "# Systems\n\nA system is a composition of parts, `configs/systems/NAME.json`. Each page "
      "says "
      "what it does, with which\nparameters, and what differs from its source.\n\n";
  Table table({{"system"}, {"what it is"}, {"source"}});
  for (const std::string& name : configs.names("systems")) {
    const SystemSpec system = SystemSpec::load(configs.file("systems", name, {}), configs);
    table.add_row({"[" + name + "](" + name + ".md)", system.title, system.source});
  }
  return text.append(table.markdown()).append(kFooter);
}

}  // namespace kvreplay
