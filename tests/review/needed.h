// The lines that an edit of a network has to change, counted without looking at what is emitted.
//
// What an emitted project states is taken from the two graphs, as they are after the passes, and from their plans: a
// list of statements for each file, one statement a line of the file. A line had to change where one of the two
// networks makes a statement that the other does not; of those in one file, the larger of what goes and what comes is
// counted.
//
//   params.h          a parameter, buffer or state: path, dtype, shape
//   configs.h         the config of a call: whose it is, and its fields; an array of sizes; an included header; a line
//                     of the struct of an optimizer's options
//   model.cpp         a call: the kernel, its functors, what it reads and writes; its comment: what it does, on which
//   evaluation.cpp    types, from which line of the user's; a module's banner; an included header; of a call with lists
//   of
//                     pointers, each list
//   calls.h           a call: whose it is, what it does, on which types, its FLOPs and bytes
//   memory_plan.h     a value of the arena: type, who writes it, who reads it last, whose memory it takes over; scratch
//   evaluation_plan.h memory, and its bytes; the peak. Not where in the arena a value lies
//   functors.h        a line of a functor, and of an optimizer's
//   model.h, model_api.cpp, program.h, main.cpp, selftest.cpp, README.md
//                     an input or result where it is described; a function that takes the inputs, once where it is
//                     declared and once where it is defined, by the C++ types of the inputs; learning rates; the batch
//
// A call or a config that the formatter breaks over several lines is one statement, so one line of it had to change,
// however many do. Values are known by module, operator and phase, not by the names that they get in the project: a
// name that changes while the module and the operator do not is none that had to. What is summed up in comments and in
// the README (calls, floating point operations, bytes) follows from other lines and is none that had to either.
#pragma once

#include <map>
#include <set>
#include <string>

#include "ir/graph.h"

namespace graven::review {

/// Statements by file.
using Statements = std::map<std::string, std::multiset<std::string>>;

/// Of the training project of this graph, which has been traced and no more.
Statements statements_of(const ir::Graph& traced);

/// What one has and the other has not, by file: "- ..." and "+ ...".
std::map<std::string, std::multiset<std::string>> difference(const Statements& before, const Statements& after);

/// How many lines had to change, by file.
std::map<std::string, int> needed_lines(const Statements& before, const Statements& after);

}  // namespace graven::review
