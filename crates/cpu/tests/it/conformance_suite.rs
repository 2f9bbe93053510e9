//! The cases and goldens that every backend must pass.
