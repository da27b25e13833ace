// A parsed JSON text as one flat tape: 16 bytes a token, whatever the text says. nlohmann's parser does the parsing;
// this keeps what a strict reader needs and its document does not: repeated keys, the order of keys, and a bound on
// nesting. Private to the readers of ir/.
//
//   json::Document document(text, "graph.json", /*maximum_nesting=*/64);
//   for (json::Item item : document.root().items()) ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace graven::ir::json {

enum class Kind : std::uint8_t { null, boolean, integer, number, text, array, object };
/// "a string", "an object", ...: as error messages say it.
std::string_view describe(Kind kind);

struct Token {
  Kind kind;
  std::uint32_t extent;  ///< text: bytes; array, object: tokens of the whole, this one included
  union {
    std::int64_t integer;
    double number;
    std::uint64_t offset;  ///< text: into Document's characters; array: elements; object: keys
  };
};

class Document;

/// One value of the document; cheap to copy, valid as long as the document is.
class Item {
 public:
  Item(const Document& document, std::uint32_t position) : document_(&document), position_(position) {}
  Kind kind() const;
  bool boolean() const;
  std::int64_t integer() const;
  double number() const;  ///< of an integer, too
  std::string_view text() const;
  std::size_t size() const;

  /// Elements of an array, or keys and values of an object in turn.
  class Iterator {
   public:
    Iterator(const Document& document, std::uint32_t position) : document_(&document), position_(position) {}
    Item operator*() const { return {*document_, position_}; }
    Iterator& operator++();
    bool operator!=(const Iterator& other) const { return position_ != other.position_; }

   private:
    const Document* document_;
    std::uint32_t position_;
  };
  Iterator begin() const { return {*document_, position_ + 1}; }
  Iterator end() const;
  /// What an error message quotes: "the string \"abc\"", "12", "an array of 3".
  std::string quote() const;

 private:
  friend class Document;
  const Token& token() const;
  const Document* document_;
  std::uint32_t position_;
};

class Document {
 public:
  /// User error, naming `file`, line and column, when the text is not JSON or nests deeper than `maximum_nesting`.
  Document(std::string_view text, const std::string& file, std::size_t maximum_nesting);
  Item root() const { return {*this, 0}; }

 private:
  friend class Item;
  friend class Item::Iterator;
  friend struct Builder;
  std::vector<Token> tokens_;
  std::string characters_;
};

inline const Token& Item::token() const { return document_->tokens_[position_]; }
inline Kind Item::kind() const { return token().kind; }
inline bool Item::boolean() const { return token().integer != 0; }
inline std::int64_t Item::integer() const { return token().integer; }
inline double Item::number() const {
  return kind() == Kind::integer ? static_cast<double>(token().integer) : token().number;
}
inline std::string_view Item::text() const {
  return std::string_view(document_->characters_).substr(token().offset, token().extent);
}
inline std::size_t Item::size() const { return static_cast<std::size_t>(token().offset); }
inline Item::Iterator Item::end() const { return {*document_, position_ + token().extent}; }
inline Item::Iterator& Item::Iterator::operator++() {
  const Token& token = document_->tokens_[position_];
  position_ += token.kind == Kind::array || token.kind == Kind::object ? token.extent : 1;
  return *this;
}

}  // namespace graven::ir::json
