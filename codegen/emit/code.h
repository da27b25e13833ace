// The text of calls in parts: what stands for a pointer or a config is known and not looked for, so that the function
// of a block can say it in words of its own.
//
//   Code code = "sizeof(f32) * n, ";
//   code += Pointer{"buf", "h_1", "attn_add"};
//   code.text();                                // "sizeof(f32) * n, buf.h_1.attn_add"
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace graven::codegen {

/// A member of one of a step's structs, of a block's struct in it or, where there is no block, its own.
struct Pointer {
  std::string object, block, name;

  std::string text() const;  ///< "buf.h_1.attn_add"
  friend auto operator<=>(const Pointer&, const Pointer&) = default;
};

/// A constant of configs.h.
struct ConfigName {
  bool is_evaluation = false;  ///< it stands in config::evaluation
  std::string block, name;

  std::string text() const;  ///< "config::evaluation::h_1::attn_add"
};

class Code {
 public:
  using Piece = std::variant<std::string, Pointer, ConfigName>;

  Code() = default;
  template <class Text>
    requires std::is_convertible_v<Text, std::string_view>
  Code(Text&& text) : pieces_{std::string(std::forward<Text>(text))} {}
  Code(Pointer pointer) : pieces_{std::move(pointer)} {}
  Code(ConfigName config) : pieces_{std::move(config)} {}

  Code& operator+=(Code other);

  std::vector<Piece>& pieces() { return pieces_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  /// The pointer where that is all of it, else nullptr.
  const Pointer* pointer() const { return pieces_.size() == 1 ? std::get_if<Pointer>(&pieces_.front()) : nullptr; }
  std::string text() const;

 private:
  std::vector<Piece> pieces_;
};

/// The parts with ", " between them.
Code join(const std::vector<Code>& parts);

/// A pattern such as "copy({to}, {from});" with its names in braces replaced.
Code filled_in(std::string_view pattern, std::initializer_list<std::pair<std::string_view, Code>> values);

}  // namespace graven::codegen
