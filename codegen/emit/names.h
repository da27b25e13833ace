// Names: from paths ("model.features.0.weight", or anything a user made up) to C++ identifiers.
//
//   Names names({"model.features.0.weight", "model.class", "a.b_c", "a_b.c"}, "model");
//   names["model.features.0.weight"]   // features_0_weight
//   names["model.class"]               // class_
//   names["a.b_c"], names["a_b.c"]     // a_b_c_5f0e6b35, a_b_c_9d2c1f40: both would be a_b_c
//
// Injective: different paths get different identifiers. A name depends on its path alone, unless another path of the
// set would get the same identifier. Then gradients are spelled out ("gradient_of_hidden_linear_mul" beside a module's
// own "hidden_linear_backward_mul"); paths of which nothing tells which should yield carry a digest. There is no
// counter, so adding a layer renames no other.
//
// An identifier has letters, digits and single underscores, starts with a letter, is no keyword and no macro (at least
// one lower-case letter, or a trailing underscore), and has at most 120 characters.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace graven::codegen {

/// The identifier that `path` gets when no other path is in its way. A leading "<root>." is dropped;
/// "grad(model.hidden.linear).linear_backward" reads "hidden_linear_backward". A keyword, or a word of `taken`, gets an
/// underscore at its end.
std::string identifier(std::string_view path, std::string_view root = {}, std::span<const std::string_view> taken = {});

class Names {
 public:
  Names() = default;
  explicit Names(const std::vector<std::string>& paths, std::string_view root = {},
                 std::span<const std::string_view> taken = {});
  /// Internal error for a path that was not given.
  const std::string& operator[](const std::string& path) const;
  bool contains(const std::string& path) const { return names_.count(path) != 0; }
  const std::unordered_map<std::string, std::string>& by_path() const { return names_; }

 private:
  std::unordered_map<std::string, std::string> names_;
};

/// "train_mlp" of "TrainMlp".
std::string snake_case(const std::string& name);

/// Which members stand in a struct of their own: where "features_3" is one of the blocks, "features_3_conv_0_weight" is
/// "features_3.conv_0_weight".
class Nesting {
 public:
  struct Place {
    std::string block, name;  ///< no block: it stands by itself
    std::string dotted() const { return block.empty() ? name : block + "." + name; }
    /// The identifier that it comes from.
    std::string joined() const { return block.empty() ? name : block + "_" + name; }
  };

  Nesting() = default;
  /// `blocks`: identifiers.
  explicit Nesting(const std::vector<std::string>& blocks) : blocks_(blocks.begin(), blocks.end()) {}
  bool empty() const { return blocks_.empty(); }
  Place operator()(const std::string& identifier) const;

 private:
  std::unordered_set<std::string> blocks_;
};

/// The first component that all paths share ("model"), empty when they don't.
std::string common_root(const std::vector<std::string>& paths);

/// `text` as it may stand in a // or /* */ comment or a banner: one line, printable; other bytes as <nn>, in
/// hexadecimal, no comment ends, no trigraphs, no trailing backslash, at most 200 characters.
std::string comment_text(std::string_view text);

/// `text` as a C++ string literal, quotes included; only printable ASCII, no trigraphs.
std::string string_literal(std::string_view text);

}  // namespace graven::codegen
