// The graph as JSON text: format "graven.graph", version 1. Complete (reading gives the same graph back), canonical
// (the same graph always gives the same bytes) and made for review: one node, parameter, module or constant a line, so
// that a text diff of two graphs reads well.
//
//   const std::string text = ir::to_json(graph);
//   const ir::Graph same = ir::from_json(text, "graph.json");
//   ir::write_graph("out/graph.json", graph);          // and out/graph.safetensors when it holds large constants
//   const ir::Graph read = ir::read_graph("out/graph.json");
//
//   {
//   "format": "graven.graph",
//   "version": 1,
//   "name": "TrainMlp",
//   ...
//   "nodes": [
//   {"outputs": [["model.hidden.linear", "f32[batch,256]"]], "op": "linear",
//    "inputs": ["images", "model.hidden.weight", null], "attributes": {...}, "phase": "forward",
//    "origins": [["model.hidden", "mlp.cpp", 8]]}          (on one line)
//
// Values go by their names. A type is dtype and shape, "f32[784*batch,10]"; the symbols and their maxima stand once, in
// "symbols". Numbers are the shortest text that reads back to the same bits; "inf", "-inf" and "nan" are strings; f16
// and bf16 elements are bit patterns. Attributes are plain JSON, read by the types that the operator declares. A
// constant of more than kInlineConstantBytes has no "data": its bytes lie under its name in the safetensors file beside
// the graph. "donations" and "clips" are left out where there are none. The key "saved", which may be left out, is a
// digest that the files of one saved folder share.
//
// Reading trusts nothing: every mistake is one UserError that names the file, the place ("nodes[3].inputs[0]"), what
// was expected and what was found. Memory is bounded by a small multiple of the text's size, nesting by
// kMaximumNesting.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace graven::runtime {
class SafetensorsFile;
}

namespace graven::ir {

inline constexpr int kGraphFormatVersion = 1;
inline constexpr std::size_t kInlineConstantBytes = 512;
inline constexpr std::size_t kMaximumNesting = 64;
inline constexpr std::size_t kMaximumNameLength = 4096;

/// Gives the bytes of a constant that is not inline. Nullptr, or another type than asked for, is reported as a user
/// error.
using ConstantLoader =
    std::function<std::shared_ptr<const TensorData>(const std::string& name, const TensorType& type)>;

/// The whole graph, ending with a newline. User error when a name cannot be written (it is not valid UTF-8, or holds
/// control characters).
std::string to_json(const Graph& graph, std::string_view saved = {});

/// `file` is what errors call the text. User error on any mistake. `saved` becomes what the text was written with,
/// empty where there is none.
Graph from_json(std::string_view text, const std::string& file, const ConstantLoader& load_constant = {},
                std::string* saved = nullptr);

/// Whether the graph has constants that to_json leaves to the file beside it.
bool has_large_constants(const Graph& graph);

/// Writes the text to `path` and, where there are large constants, their bytes to the same path with ".safetensors" in
/// place of ".json". Each file appears whole or not at all. User error when it cannot be written.
void write_graph(const std::string& path, const Graph& graph, std::string_view saved = {});

/// Reads what write_graph wrote, or the compact text of ir/text.h. Large constants come from the ".safetensors" beside
/// it or, failing that, "weights.safetensors" in the folder. User error where that file was saved with another graph.
Graph read_graph(const std::string& path, std::string* saved = nullptr);

/// The key of the digest in the metadata of safetensors files.
inline constexpr std::string_view kSavedKey = "graven.saved";
/// The graph's own digest, without its weights: of its text and its large constants.
std::string digest_of(const Graph& graph);
/// User error, naming both files, where `file` was saved with another graph than `graph_path`, which says `saved`. What
/// has no digest fits.
void check_saved_together(const std::string& graph_path, std::string_view saved, const runtime::SafetensorsFile& file);

}  // namespace graven::ir
