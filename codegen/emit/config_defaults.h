// What a field of a kernel's config is where a call says nothing of it.
#pragma once

#include <map>
#include <string>

namespace graven::codegen {

/// The values of the fields of this struct that configs.h leaves out, as it would print them: {"groups", "1"} of
/// "conv2d_config". Of the fields that are always said, such as sizes, there are none.
const std::map<std::string, std::string>& config_defaults(const std::string& config_type);

}  // namespace graven::codegen
