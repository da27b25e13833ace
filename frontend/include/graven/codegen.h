// Emitting a graph as a standalone project.
#pragma once
