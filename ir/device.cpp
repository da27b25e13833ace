#include "ir/device.h"

#include <atomic>
#include <charconv>
#include <ostream>

#include "ir/diagnostic.h"

namespace graven::ir {

std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.to_string(); }

Device::Device(std::string_view name) {
  if (name == "cpu") return;
  const std::string_view prefix = "cuda";
  std::string_view rest = name;
  if (rest.starts_with(prefix)) {
    kind = Kind::cuda;
    rest.remove_prefix(prefix.size());
    if (rest.empty()) return;
    const char* const end = rest.data() + rest.size();
    if (rest.size() > 1 && rest[0] == ':' && rest[1] != '-')
      if (const auto [stop, error] = std::from_chars(rest.data() + 1, end, index); error == std::errc() && stop == end)
        return;
  }
  throw UserError("device: expected cpu, cuda or cuda:<number>, got '" + std::string(name) + "'");
}

namespace {
std::atomic<bool> tf32_is_allowed = false;
}
void allow_tf32(bool on) { tf32_is_allowed = on; }
bool allows_tf32() { return tf32_is_allowed; }

}  // namespace graven::ir
