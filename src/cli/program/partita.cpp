#include "partita/cli/main.hpp"

int main(int argc, char** argv) { return partita::main(argc, argv); }
